#!/usr/bin/env bash
# structlog 26.1.0 writes the time of a line with six digits after the second, and with none where they
# would be zeros: one line in a million has another length and form. By text it then sorts behind all of
# its second ("Z" is after "."), and a parser with a fixed form (%f, a column of 27 characters) refuses it
# or dates it to the arrival.
# Expected: the same form for each line, as ISO 8601 with microseconds has it.
# Seen, of lines at 0, 1 and 999999 microseconds of a second:
#   2026-07-01T12:00:00Z
#   2026-07-01T12:00:00.000001Z
#   2026-07-01T12:00:00.999999Z
#   sorted by text, first: 2026-07-01T12:00:00.000001Z, last: 2026-07-01T12:00:00Z
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet structlog==26.1.0 time-machine==3.2.0
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import datetime as dt
import structlog, time_machine

stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
lines = []
for microseconds in (0, 1, 999_999):
    at = dt.datetime(2026, 7, 1, 12, 0, 0, microseconds, dt.timezone.utc)
    with time_machine.travel(at, tick=False):
        lines.append(stamp(None, "info", {"event": "committed"}))
times = [line["timestamp"] for line in lines]
print(*times, sep="\n")
ordered = sorted(times)
print(f"sorted by text, first: {ordered[0]}, last: {ordered[-1]}")
second = "2026-07-01T12:00:00"
assert times == [f"{second}Z", f"{second}.000001Z", f"{second}.999999Z"], "it has changed"
assert ordered[-1] == times[0], "it has changed"
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py"
