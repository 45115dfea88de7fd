#!/usr/bin/env bash
# The registry client of confluent-kafka 2.16.1 keeps schemas by their id alone: get_schema(1,
# fmt="serialized") after get_schema(1) returns the text that the first call fetched, and asks the
# registry nothing. In the other order both calls return the descriptor.
# Expected: each call returns the form that it asks for.
# Seen:
#   asked ['/schemas/ids/1', '/schemas/ids/1?format=serialized']
#   text first: text, then "serialized" is the text: True
#   serialized first: descriptor, then no format is the descriptor: True
#   after clear_caches() "serialized" is the descriptor: True
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'confluent-kafka[schema-registry]==2.16.1'
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from confluent_kafka.schema_registry import SchemaRegistryClient

TEXT, DESCRIPTOR = 'syntax = "proto3"; message A { int64 id = 1; }', "CgdhLnByb3RvEgFhYgZwcm90bzM="
asked = []


class Registry(BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        schema = DESCRIPTOR if "format=serialized" in self.path else TEXT
        body = json.dumps({"schema": schema, "schemaType": "PROTOBUF"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}"
text_first, other = SchemaRegistryClient({"url": url}), SchemaRegistryClient({"url": url})
assert text_first.get_schema(1).schema_str == TEXT
second = text_first.get_schema(1, fmt="serialized").schema_str
assert other.get_schema(1, fmt="serialized").schema_str == DESCRIPTOR
fourth = other.get_schema(1).schema_str
print("asked", asked)
print('text first: text, then "serialized" is the text:', second == TEXT)
print("serialized first: descriptor, then no format is the descriptor:", fourth == DESCRIPTOR)
text_first.clear_caches()
cleared = text_first.get_schema(1, fmt="serialized").schema_str
print('after clear_caches() "serialized" is the descriptor:', cleared == DESCRIPTOR)
assert second == TEXT, "it has changed"
assert fourth == DESCRIPTOR, "it has changed"
assert cleared == DESCRIPTOR, "it has changed"
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py"
