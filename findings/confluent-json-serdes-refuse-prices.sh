#!/usr/bin/env bash
# The JSON Schema serdes of confluent-kafka 2.16.1 (jsonschema 4.26.0) divide floats to judge multipleOf:
# with a schema that asks for amounts in whole cents, "multipleOf": 0.01, the serializer refuses 19.99 and
# 1,362 more of the 10,000 amounts from 0.01 to 100.00, and the deserializer refuses them as well where
# another client wrote them. jsonschema-rs 0.61.2 takes all 10,000, and both refuse 0.005.
# Expected: amounts in whole cents are multiples of 0.01, for all validators alike.
# Seen:
#   19.99: serializer SerializationError, deserializer SerializationError, jsonschema-rs takes it
#   refused of 10,000: by the serializer 1363, by the deserializer 1363, by jsonschema-rs 0
#   0.005: serializer SerializationError, deserializer SerializationError, jsonschema-rs refuses it
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'confluent-kafka[schema-registry,json]==2.16.1' jsonschema==4.26.0 jsonschema-rs==0.61.2
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jsonschema_rs
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"price": {"type": "number", "multipleOf": 0.01}},
}


class Registry(BaseHTTPRequestHandler):
    """Give the schema, under the id 1, to each who asks for it, and no associations."""

    def do_GET(self):
        self.answer(404, {"error_code": 404}) if "associations" in self.path else self.answer()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer()

    def answer(self, status=200, what=None):
        what = what or {"id": 1, "version": 1, "schemaType": "JSON", "schema": json.dumps(SCHEMA)}
        body = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
threading.Thread(target=server.serve_forever, daemon=True).start()
registry = SchemaRegistryClient({"url": f"http://127.0.0.1:{server.server_address[1]}"})
serializer = JSONSerializer(json.dumps(SCHEMA), registry)
deserializer = JSONDeserializer(json.dumps(SCHEMA), schema_registry_client=registry)
context = SerializationContext("orders", MessageField.VALUE)
third = jsonschema_rs.validator_for(SCHEMA)


def judged(call, what):
    try:
        call(what, context)
    except Exception as error:
        return type(error).__name__
    return "takes it"


def verdicts(price):
    """Return what serializer, deserializer and the other validator say to a price, as others write it."""
    written = b"\0\0\0\0\1" + json.dumps({"price": price}).encode()
    return (
        judged(serializer, {"price": price}),
        judged(deserializer, written),
        "takes it" if third.is_valid({"price": price}) else "refuses it",
    )


def shown(price):
    found = verdicts(price)
    print(f"{price}: serializer {found[0]}, deserializer {found[1]}, jsonschema-rs {found[2]}")
    return found


error = "SerializationError"
assert shown(19.99) == (error, error, "takes it"), "it has changed"
every = [verdicts(cents / 100) for cents in range(1, 10_001)]
by = [sum(found[who] != "takes it" for found in every) for who in range(3)]
print(f"refused of 10,000: by the serializer {by[0]}, by the deserializer {by[1]}, by jsonschema-rs {by[2]}")
assert shown(0.005) == (error, error, "refuses it"), "it has changed"
assert by[0] == by[1] > 0 and by[2] == 0, "it has changed"
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py"
