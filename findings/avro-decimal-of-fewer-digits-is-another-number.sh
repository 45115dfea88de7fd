#!/usr/bin/env bash
# avro 1.12.2 (Apache's package for Python) writes a Decimal with fewer digits after the point than
# the schema's scale as its digits alone: 1.2 in decimal(6, 2) is read back as 0.12, 100 as 1.00, for
# the bytes are those of 12 and 100 (read here with fastavro). fastavro 1.13.1 writes 1.20 and 100.00.
# Expected: 1.20, the same number with the schema's scale.
# Seen:
#   avro     1.23 -> 1.23  1.2 -> 0.12  100 -> 1.00
#   fastavro 1.23 -> 1.23  1.2 -> 1.20  100 -> 100.00
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet avro==1.12.2 fastavro==1.13.1
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import io, json
from decimal import Decimal
import avro.io, avro.schema, fastavro

schema = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}

def by_avro(number):
    written = io.BytesIO()
    writer = avro.io.DatumWriter(avro.schema.parse(json.dumps(schema)))
    writer.write(number, avro.io.BinaryEncoder(written))
    return written

def by_fastavro(number):
    written = io.BytesIO()
    fastavro.schemaless_writer(written, schema, number)
    return written

def read(written):
    written.seek(0)
    return str(fastavro.schemaless_reader(written, schema, None))

numbers = "1.23", "1.2", "100"
seen = {}
for name, write in ("avro", by_avro), ("fastavro", by_fastavro):
    seen[name] = [read(write(Decimal(number))) for number in numbers]
    print(f"{name:8}", "  ".join(f"{n} -> {r}" for n, r in zip(numbers, seen[name])))
assert seen["avro"] == ["1.23", "0.12", "1.00"], "it has changed"
assert seen["fastavro"] == ["1.23", "1.20", "100.00"], "it has changed"
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py"
