from hypothesis import given, settings

from hapax.claims.redis import by_shard, packed_digests, packed_owners
from tests.kit.native import few, plain

SALT = bytes(range(16))
NUMBERS = {"orders": b"\x11\x22\x33"}


@given(records=plain)
@settings(max_examples=few(200), deadline=None)
def test_digests_and_owners_of_native_records_are_those_of_a_list(stage, records):
    for native, batch in stage.play(records, ["header:id", "key"]):
        assert packed_owners(native, NUMBERS) == packed_owners(list(batch.records), NUMBERS)
        for index, (claim, at) in enumerate(zip(native.claims, range(0, 10**9, 16), strict=False)):
            digest = packed_digests(native.claims, SALT)[at : at + 16]
            assert digest == (packed_digests([claim], SALT) if claim else bytes(16)), index


@given(records=plain)
@settings(max_examples=few(200), deadline=None)
def test_native_records_are_sorted_by_shard_as_a_list_is(stage, records):
    for native, batch in stage.play(records, ["header:id", "key"]):
        digests = packed_digests(native.claims, SALT)
        owners = packed_owners(native, NUMBERS)
        indices, *rest = by_shard(native.claims, digests, owners, b"")
        expected, *others = by_shard(list(batch.records), digests, owners, b"")
        assert [*indices] == expected
        assert rest == others
