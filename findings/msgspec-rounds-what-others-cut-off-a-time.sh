#!/usr/bin/env bash
# A time with nanoseconds in JSON (as Go, Java and Rust write it) is read by msgspec 0.22.0 rounded to
# the nearest microsecond, up into the next second, while Python's datetime, protobuf 7.36.2 and
# pandas 2.3.3 cut the rest off. 23:59:59.999999999 is the next day for one of them: two steps of a
# pipeline count one event in two windows, or make two ids of it.
# Expected: the rest is cut off by all of them.
# Seen, of 2026-07-01T23:59:59.999999999Z:
#   datetime 2026-07-01T23:59:59.999999+00:00
#   protobuf 2026-07-01T23:59:59.999999+00:00
#   pandas   2026-07-01T23:59:59.999999+00:00
#   msgspec  2026-07-02T00:00:00+00:00
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet msgspec==0.22.0 protobuf==7.36.2 pandas==2.3.3
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import datetime as dt
import msgspec, pandas
from google.protobuf.timestamp_pb2 import Timestamp

def by_protobuf(text):
    stamp = Timestamp()
    stamp.FromJsonString(text)
    return stamp.ToDatetime(tzinfo=dt.timezone.utc)

text = "2026-07-01T23:59:59.999999999Z"
seen = {
    "datetime": dt.datetime.fromisoformat(text.replace("Z", "+00:00")),
    "protobuf": by_protobuf(text),
    "pandas": pandas.Timestamp(text).to_pydatetime(warn=False),
    "msgspec": msgspec.json.decode(f'"{text}"', type=dt.datetime),
}
for name, time in seen.items():
    print(f"{name:8} {time.isoformat()}")
cut = dt.datetime(2026, 7, 1, 23, 59, 59, 999999, dt.timezone.utc)
assert [name for name, time in seen.items() if time == cut] == ["datetime", "protobuf", "pandas"], "it has changed"
assert seen["msgspec"] == dt.datetime(2026, 7, 2, tzinfo=dt.timezone.utc), "it has changed"
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py"
