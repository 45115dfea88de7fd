#!/usr/bin/env bash
# The AvroSerializer and the JSONSerializer of confluent-kafka 2.16.1 keep one schema id for all subjects:
# the one that was asked for last. A serializer that writes to two topics whose subjects are in two
# contexts of a registry (":.eu:a-value", ":.us:b-value"; ids count in each) writes records of the first
# topic with the id of the second from its first record there on. A reader of the first topic finds
# another schema under it, and decodes other data, or finds none.
# Expected: the id that the registry gave for the subject of the topic.
# Seen, ids 7 for a and 3 for b, topics in the order a a b a b:
#   AvroSerializer, registers: [7, 7, 3, 3, 3]
#   AvroSerializer, looks up:  [7, 7, 3, 3, 3]
#   JSONSerializer, registers: [7, 7, 3, 3, 3]
#   JSONSerializer, looks up:  [7, 7, 3, 3, 3]
#   of a, {'euros': 5} is read as {'cents': 5}
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'confluent-kafka[schema-registry,avro,json]==2.16.1'
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext


def avro(field):
    return json.dumps({"type": "record", "name": "Price", "fields": [{"name": field, "type": "int"}]})


SUBJECTS = {"a": ":.eu:a-value", "b": ":.us:b-value"}
GIVEN = {":.eu:a-value": 7, ":.us:b-value": 3}
CONTEXTS = {(".eu", 7): avro("euros"), (".us", 3): avro("euros"), (".eu", 3): avro("cents")}


class Registry(BaseHTTPRequestHandler):
    """A registry with two contexts, each with ids of its own."""

    def do_GET(self):
        path, _, query = unquote(self.path).partition("?")
        if not path.startswith("/schemas/ids/"):
            return self.answer(404, {"error_code": 404})
        context = query.partition("subject=")[2].split(":")[1]
        return self.answer(200, {"schema": CONTEXTS[context, int(path.split("/")[3])]})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        subject = unquote(self.path).split("/")[2].partition("?")[0]
        self.answer(200, {**asked, "subject": subject, "version": 1, "id": GIVEN[subject]})

    def answer(self, status, what):
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
settings = {"subject.name.strategy": lambda context, _: SUBJECTS[context.topic]}


def of(topic):
    return SerializationContext(topic, MessageField.VALUE)


last = None
for kind in (AvroSerializer, JSONSerializer):
    for word, register in (("registers", True), ("looks up", False)):
        text = avro("euros") if kind is AvroSerializer else '{"title": "Price", "type": "object"}'
        how = {**settings, "auto.register.schemas": register}
        serialize = kind(schema_registry_client=registry, schema_str=text, conf=how)
        written = [(topic, serialize({"euros": 5}, of(topic))) for topic in "aabab"]
        ids = [int.from_bytes(value[1:5], "big") for _, value in written]
        print(f"{kind.__name__}, {word + ':':10} {ids}")
        assert ids == [7, 7, 3, 3, 3], "it has changed"
        last = last or written[3][1]
read = AvroDeserializer(registry, conf=settings)(last, of("a"))
print("of a, {'euros': 5} is read as", read)
assert read == {"cents": 5}, "it has changed"
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py"
