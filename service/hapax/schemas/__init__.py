"""Schemas: where they come from, and values to data and back.

registry    the HTTP API of a schema registry, and what each of its failures means
lookup      schemas by key: memory, disk, registry; what is missing is fetched in the background
wire        how a value names its schema: before it, or in a header
avro, protobuf, json_schema   one format each, by the library that knows it; avro_nodes
typed       data of the types that functions name
codec       values to data, data to values
data        business code with data: the form of a transform around its function
"""
