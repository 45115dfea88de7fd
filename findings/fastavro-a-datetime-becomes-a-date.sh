#!/usr/bin/env bash
# fastavro 1.13.1 writes a datetime into the first branch of a union that takes it, and a date takes it, as
# Python's datetime is a date: in a union of date and timestamp-millis the time of day is lost without an
# error, and read again it is midnight of no zone. A field that is a date alone takes it, too, and cuts it
# in the zone that it has, which need not be the day in UTC. The other order of the branches keeps the
# time. avro for Python 1.12.2 finds the timestamp, and refuses a datetime for a date.
# Expected: the branch of its own type, or a refusal.
# Seen, of 2026-07-01T00:30+02:00:
#   fastavro, null, date, timestamp: 2026-07-01
#   fastavro, null, timestamp, date: 2026-06-30T22:30:00+00:00
#   fastavro, date:                  2026-07-01
#   avro, null, date, timestamp:     2026-06-30T22:30:00+00:00
#   avro, date:                      TypeError
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet fastavro==1.13.1 avro==1.12.2
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import datetime as dt, io
import avro.io, avro.schema, fastavro

def by_fastavro(schema, data):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, data)
    return fastavro.schemaless_reader(io.BytesIO(out.getvalue()), schema, None)

def by_avro(schema, data):
    made = avro.schema.make_avsc_object(schema)
    out = io.BytesIO()
    avro.io.DatumWriter(made).write(data, avro.io.BinaryEncoder(out))
    return avro.io.DatumReader(made).read(avro.io.BinaryDecoder(io.BytesIO(out.getvalue())))

day = {"type": "int", "logicalType": "date"}
moment = {"type": "long", "logicalType": "timestamp-millis"}
at = dt.datetime(2026, 7, 1, 0, 30, tzinfo=dt.timezone(dt.timedelta(hours=2)))
first, last = ["null", day, moment], ["null", moment, day]
seen = []
for name, roundtrip, schema in (
    ("fastavro, null, date, timestamp", by_fastavro, first),
    ("fastavro, null, timestamp, date", by_fastavro, last),
    ("fastavro, date", by_fastavro, day),
    ("avro, null, date, timestamp", by_avro, first),
    ("avro, date", by_avro, day),
):
    try:
        seen.append(roundtrip(schema, at).isoformat())
    except TypeError:
        seen.append("TypeError")
    print(f"{name + ':':32} {seen[-1]}")
moved = "2026-06-30T22:30:00+00:00"
assert seen == ["2026-07-01", moved, "2026-07-01", moved, "TypeError"], "it has changed"
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py"
