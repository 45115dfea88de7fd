#!/usr/bin/env bash
# fastavro 1.13.1 (PyPI): parse_schema takes a schema that is a bare name, an array or a union of a
# name that named_schemas holds, as a registry has it with references, and returns it without an
# error; the result is then unknown to schemaless_writer and schemaless_reader. The same union as
# the type of a record's field is written.
# Expected: what was parsed is written, or parse_schema refuses it.
# Seen:
#   a name               UnknownType world.Created
#   null or the name     UnknownType world.Created
#   an array of it       UnknownType world.Created
#   the union in a field b'\x02\x02a'
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet fastavro==1.13.1
cat > "$work/write.py" <<'END'
from io import BytesIO

from fastavro import parse_schema, schemaless_writer

created = {
    "type": "record",
    "name": "world.Created",
    "fields": [{"name": "id", "type": "string"}],
}
optional = ["null", "world.Created"]
event = {"id": "a"}
cases = {
    "a name": ("world.Created", event),
    "null or the name": (optional, event),
    "an array of it": ({"type": "array", "items": "world.Created"}, [event]),
    "the union in a field": (
        {"type": "record", "name": "Held", "fields": [{"name": "event", "type": optional}]},
        {"event": event},
    ),
}
seen = {}
for what, (schema, data) in cases.items():
    named = {}
    parse_schema(created, named_schemas=named)
    parsed, out = parse_schema(schema, named_schemas=named), BytesIO()
    try:
        schemaless_writer(out, parsed, data)
        seen[what] = repr(out.getvalue())
    except Exception as error:
        seen[what] = f"{type(error).__name__} {error}"
    print(f"{what:20} {seen[what]}")
unknown = "UnknownType world.Created"
assert list(seen.values()) == [unknown, unknown, unknown, repr(b"\x02\x02a")], "it has changed"
END
"$work/venv/bin/python" "$work/write.py"
