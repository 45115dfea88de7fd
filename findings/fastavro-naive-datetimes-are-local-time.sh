#!/usr/bin/env bash
# A datetime without a time zone is another instant in each library that writes events: fastavro
# 1.13.1 takes it for local time (TZ of the process), protobuf 7.36.2 for UTC, avro 1.12.2 refuses it,
# msgspec 0.22.0 leaves the zone out. The same program writes other bytes in a container whose TZ is
# set, and fastavro's reader returns UTC, so that a naive value does not come back as it was.
# Expected: timestamp-millis of a naive datetime is UTC or refused, whatever TZ is.
# Seen, of 2026-07-01 12:00 without a zone:
#   TZ=UTC              fastavro 2026-07-01T12:00:00+00:00  protobuf 2026-07-01T12:00:00Z  avro AvroTypeException  msgspec "2026-07-01T12:00:00"
#   TZ=America/New_York fastavro 2026-07-01T16:00:00+00:00  protobuf 2026-07-01T12:00:00Z  avro AvroTypeException  msgspec "2026-07-01T12:00:00"
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet fastavro==1.13.1 avro==1.12.2 protobuf==7.36.2 msgspec==0.22.0
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import datetime as dt, io, json, os
import avro.io, avro.schema, fastavro, msgspec
from google.protobuf.timestamp_pb2 import Timestamp

schema = {"type": "long", "logicalType": "timestamp-millis"}
naive = dt.datetime(2026, 7, 1, 12)

def by_fastavro():
    written = io.BytesIO()
    fastavro.schemaless_writer(written, schema, naive)
    written.seek(0)
    return fastavro.schemaless_reader(written, schema, None).isoformat()

def by_protobuf():
    stamp = Timestamp()
    stamp.FromDatetime(naive)
    return stamp.ToJsonString()

def by_avro():
    try:
        writer = avro.io.DatumWriter(avro.schema.parse(json.dumps(schema)))
        writer.write(naive, avro.io.BinaryEncoder(io.BytesIO()))
    except avro.errors.AvroTypeException as error:
        return type(error).__name__
    return "written"

seen = by_fastavro(), by_protobuf(), by_avro(), msgspec.json.encode(naive).decode()
print("TZ={:16} fastavro {}  protobuf {}  avro {}  msgspec {}".format(os.environ["TZ"], *seen))
fastavro_hour = {"UTC": 12, "America/New_York": 16}[os.environ["TZ"]]
assert seen == (f"2026-07-01T{fastavro_hour}:00:00+00:00", "2026-07-01T12:00:00Z",
                "AvroTypeException", '"2026-07-01T12:00:00"'), "it has changed"
END_OF_PROGRAM
TZ=UTC "$work/venv/bin/python" "$work/ask.py"
TZ=America/New_York "$work/venv/bin/python" "$work/ask.py"
