#!/usr/bin/env bash
# ProtobufSerializer of confluent-kafka 2.16.1 (PyPI) with use.latest.version=True raises KeyError
# for a message that is declared inside another one: it looks the short name up among the messages
# at the top of the file. A nested message whose short name a message at the top has as well is
# written rightly, so what fails depends on the names of others. The default, which registers the
# schema itself, writes both, and so does Confluent's Node client with useLatestVersion.
# Expected: the same bytes by both settings, as the schema in the registry is the same.
# Seen:
#   registered by itself: world.Order 00, world.Order.Line 04 00 00, world.Order.Note 04 00 02
#   use.latest.version: world.Order 00, world.Order.Line KeyError 'Line', world.Order.Note 04 00 02
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'confluent-kafka[protobuf,schemaregistry]==2.16.1'
cat > "$work/write.py" <<'END'
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

file = descriptor_pb2.FileDescriptorProto(name="world.proto", package="world", syntax="proto3")
order = file.message_type.add(name="Order")
order.nested_type.add(name="Line")
order.nested_type.add(name="Note")
file.message_type.add(name="Note")
pool = descriptor_pool.DescriptorPool()
pool.Add(file)
registry = SchemaRegistryClient.new_client({"url": "mock://"})


def path(name, conf):
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    context = SerializationContext("orders", MessageField.VALUE, [])
    try:
        write = ProtobufSerializer(kind, registry, {"use.deprecated.format": False, **conf})
        return write(kind(), context)[5:].hex(" ")
    except KeyError as error:
        return f"KeyError {error}"


seen = []
latest = {"auto.register.schemas": False, "use.latest.version": True}
for label, conf in (("registered by itself", {}), ("use.latest.version", latest)):
    names = ("world.Order", "world.Order.Line", "world.Order.Note")
    seen.append(", ".join(f"{name} {path(name, conf)}" for name in names))
    print(f"{label}: {seen[-1]}")
assert seen == [
    "world.Order 00, world.Order.Line 04 00 00, world.Order.Note 04 00 02",
    "world.Order 00, world.Order.Line KeyError 'Line', world.Order.Note 04 00 02",
], "it has changed"
END
"$work/venv/bin/python" "$work/write.py"
