"""The serdes of confluent-kafka for Python, with the newest schema of the subject."""

import base64
import json
import sys

from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict, ParseDict


def text(content):
    return base64.b64encode(content).decode()


def message(asked):
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(base64.b64decode(asked["descriptor"]))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(asked["message"]))


def written(asked, registry, data):
    conf = {"auto.register.schemas": False, "use.latest.version": True}
    if asked["form"] == "header":
        conf["schema.id.serializer"] = header_schema_id_serializer
    if asked["format"] == "avro":
        serializer = AvroSerializer(registry, conf=conf)
    elif asked["format"] == "json-schema":
        serializer = JSONSerializer(None, registry, conf=conf)
    else:
        kind = message(asked)
        conf["use.deprecated.format"] = False
        serializer, data = ProtobufSerializer(kind, registry, conf), ParseDict(data, kind())
    context = SerializationContext(asked["topic"], MessageField.VALUE, [])
    value = serializer(data, context)
    return {"v": text(value), "h": [[name, text(told)] for name, told in context.headers]}


def read(asked, registry, given):
    headers = [(name, base64.b64decode(told)) for name, told in given["h"]]
    context = SerializationContext(asked["topic"], MessageField.VALUE, headers)
    value = base64.b64decode(given["v"])
    if asked["format"] == "avro":
        return {"d": AvroDeserializer(registry)(value, context)}
    if asked["format"] == "json-schema":
        return {"d": JSONDeserializer(None, schema_registry_client=registry)(value, context)}
    deserializer = ProtobufDeserializer(message(asked), {"use.deprecated.format": False})
    return {"d": MessageToDict(deserializer(value, context))}


asked = json.loads(sys.argv[2])
registry = SchemaRegistryClient({"url": asked["url"]})
for line in sys.stdin:
    given = json.loads(line)
    is_data = "d" in given
    answer = written(asked, registry, given["d"]) if is_data else read(asked, registry, given)
    print(json.dumps(answer))
