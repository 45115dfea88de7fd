#!/usr/bin/env bash
# orjson 3.13.0 reads a JSON integer beyond 64 bits as a float, without an error: two ids of an event
# that differ in their last digits become one value. json of Python 3 and msgspec 0.22.0 read the
# integer. orjson itself refuses to write such an integer.
# Expected: the integer, as json reads it, or an error, as orjson's writer gives one.
# Seen:
#   json    18446744073709551616 18446744073709551617 one id: False
#   msgspec 18446744073709551616 18446744073709551617 one id: False
#   orjson  1.8446744073709552e+19 1.8446744073709552e+19 one id: True
#   orjson writes 2**64: TypeError Integer exceeds 64-bit range
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet orjson==3.13.0 msgspec==0.22.0
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import json
import msgspec, orjson

texts = str(2**64), str(2**64 + 1)
one_id = {}
for name, read in ("json", json.loads), ("msgspec", msgspec.json.decode), ("orjson", orjson.loads):
    first, second = (read(text) for text in texts)
    one_id[name] = first == second
    print(f"{name:7} {first} {second} one id: {one_id[name]}")
try:
    orjson.dumps(2**64)
    written = "yes"
except TypeError as error:
    written = f"{type(error).__name__} {error}"
print("orjson writes 2**64:", written)
assert one_id == {"json": False, "msgspec": False, "orjson": True}, "it has changed"
assert "64-bit" in written, "it has changed"
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py"
