"""Built-in transforms: ``HAPAX_TRANSFORM=hapax.transforms.<file>:<name>``.

records      identity, drop_tombstones: what needs no look into the value
json_values  json_validate, split_json_array, and rekey_by_json, which is made with constants

They know the core alone and have no settings; docs/transforms.md shows how to make your own.
"""
