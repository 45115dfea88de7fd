#!/usr/bin/env bash
# fastavro 1.13.1 gives a field that the writer did not have, and the reader's schema has with a default,
# the object of the parsed schema itself: all records that lack the field share one list, map or
# record, and what a program adds to one is in all that are read later (avro for Python 1.12.2 makes a
# list for each). It is also the default as JSON has it: 0 in place of a time, text in place of bytes
# and of a decimal.
# Expected: a default is read as if the writer had written it.
# Seen, of three records without the field, where the program adds "paid" to the tags of the first:
#   fastavro, tags: 1 ['paid'], 2 ['paid'], 3 ['paid']
#   avro, tags:     1 ['paid'], 2 [], 3 []
#   a timestamp by fastavro: written datetime, default int
#   a decimal by fastavro:   written Decimal, default str
#   bytes by fastavro:       written bytes, default str
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet fastavro==1.13.1 avro==1.12.2
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import copy, datetime as dt, decimal, io
import avro.io, avro.schema, fastavro

def schema(*fields):
    return {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, *fields]}

def by_fastavro(written, read, data):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, written, data)
    return fastavro.schemaless_reader(io.BytesIO(out.getvalue()), written, read)

def by_avro(written, read, data):
    written, read = map(avro.schema.make_avsc_object, (written, read))
    out = io.BytesIO()
    avro.io.DatumWriter(written).write(data, avro.io.BinaryEncoder(out))
    return avro.io.DatumReader(written, read).read(avro.io.BinaryDecoder(io.BytesIO(out.getvalue())))

old = schema()
new = schema({"name": "tags", "type": {"type": "array", "items": "string"}, "default": []})
found = {}
for name, roundtrip, schemas in (
    ("fastavro", by_fastavro, tuple(map(fastavro.parse_schema, copy.deepcopy((old, new))))),
    ("avro", by_avro, (old, new)),
):
    found[name] = []
    for number in "123":
        order = roundtrip(*schemas, {"id": number})
        if number == "1":
            order["tags"].append("paid")
        found[name].append(order["tags"])
    texts = ", ".join(f"{number} {tags}" for number, tags in zip("123", found[name]))
    print(f"{name + ', tags:':15} {texts}")

types = {}
for name, kind, default, value in (
    ("a timestamp", {"type": "long", "logicalType": "timestamp-millis"}, 0, dt.datetime.now(dt.timezone.utc)),
    ("a decimal", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "\u0001", decimal.Decimal("0.01")),
    ("bytes", "bytes", "\u0001", b"\1"),
):
    new = schema({"name": "v", "type": kind, "default": default})
    seen = by_fastavro(new, new, {"id": "1", "v": value})["v"], by_fastavro(old, new, {"id": "1"})["v"]
    types[name] = [type(one).__name__ for one in seen]
    print(f"{name + ' by fastavro:':24} written {types[name][0]}, default {types[name][1]}")
assert found == {"fastavro": [["paid"]] * 3, "avro": [["paid"], [], []]}, "it has changed"
assert list(types.values()) == [["datetime", "int"], ["Decimal", "str"], ["bytes", "str"]], "it has changed"
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py"
