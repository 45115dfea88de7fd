"""Values against the official serializers and deserializers: the same bytes, the same data."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import ParseDict

from hapax.core.formats import Format, FormatOptions, Placement, RegistryOptions
from hapax.core.records import Record
from hapax.schemas.codec import Decoder, Encoder
from hapax.schemas.lookup import Lookup
from tests.kit.schema_registry import RegistryDouble

TOPIC = "sales"
ITEM = {"type": "record", "name": "shop.Item", "fields": [{"name": "sku", "type": "string"}]}
SALE = {
    "type": "record",
    "name": "shop.Sale",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "items", "type": {"type": "array", "items": "shop.Item"}},
        {
            "name": "sum",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
    ],
}
SALES = [
    {"id": 300, "note": None, "items": [], "sum": Decimal("0.00")},  # of less theirs reads none
    {"id": 2**62, "note": "näh", "items": [{"sku": "a"}, {"sku": ""}], "sum": Decimal("-1.25")},
]
SHAPE = {
    "type": "object",
    "title": "Sale",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "item": {"$ref": "item.json"}},
}
SHAPES: list[dict[str, Any]] = [{"id": 1}, {"id": 2, "item": {"sku": "ä"}, "more": [1.5, None]}]


@pytest.fixture(scope="module")
def registry():
    with RegistryDouble() as registry:
        registry.add("item", ITEM)
        item = [{"name": "shop.Item", "subject": "item", "version": 1}]
        registry.add(f"{TOPIC}-value", SALE, references=item)
        yield registry


def formats(
    registry: RegistryDouble, kind: Format, placement: Placement = "prefix", topic: str = TOPIC
) -> FormatOptions:
    options = RegistryOptions(url=(registry.url,), placement=placement)
    return FormatOptions(input=kind, output=kind, topic=topic, registry=options)


def encoder(registry: RegistryDouble, *words: Any, **more: Any) -> Encoder:
    options = formats(registry, *words, **more)
    return Encoder(options, Lookup(options.registry))


def decoder(registry: RegistryDouble, kind: Format, data: Any = Any) -> Decoder:
    options = formats(registry, kind)
    return Decoder(options, Lookup(options.registry), data)


def official(registry: RegistryDouble) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def settings(placement: Placement = "prefix") -> dict[str, Any]:
    conf: dict[str, Any] = {
        "auto.register.schemas": False,
        "use.latest.version": True,
        "subject.name.strategy": topic_subject_name_strategy,
    }
    return (
        conf
        if placement == "prefix"
        else conf | {"schema.id.serializer": header_schema_id_serializer}
    )


def in_context(
    serializer: Any, data: Any, topic: str = TOPIC
) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
    """Return value and headers as an official serializer makes them."""
    headers: list[Any] = []
    value = serializer(data, SerializationContext(topic, MessageField.VALUE, headers))
    return value, tuple(headers)


@pytest.mark.parametrize("placement", ["prefix", "header"])
@pytest.mark.parametrize("data", SALES)
def test_avro_with_references_is_written_and_read_as_by_the_official_serdes(
    registry, placement, data
):
    theirs = in_context(AvroSerializer(official(registry), conf=settings(placement)), data)
    assert encoder(registry, "avro", placement).encode(data, None) == theirs
    record: Record[Any] = Record(TOPIC, 0, 0, None, *theirs)
    assert decoder(registry, "avro").decode(record) == data
    conf = {"subject.name.strategy": topic_subject_name_strategy}
    read = AvroDeserializer(official(registry), conf=conf)
    context = SerializationContext(TOPIC, MessageField.VALUE, list(theirs[1]))
    assert read(theirs[0], context) == data


@pytest.mark.parametrize("placement", ["prefix", "header"])
@pytest.mark.parametrize("data", SHAPES)
def test_json_schema_with_references_is_written_and_read_as_by_the_official_serdes(
    registry, placement, data
):
    topic = f"shapes-{placement}-{data['id']}"
    item = {"type": "object", "properties": {"sku": {"type": "string"}}}
    registry.add(f"item-{topic}", item, "JSON")
    registry.add(
        f"{topic}-value",
        SHAPE,
        "JSON",
        references=[{"name": "item.json", "subject": f"item-{topic}", "version": 1}],
    )
    serializer = JSONSerializer(None, official(registry), conf=settings(placement))
    theirs = in_context(serializer, data, topic)
    ours = encoder(registry, "json-schema", placement, topic=topic)
    assert ours.encode(data, None) == theirs
    record: Record[Any] = Record(topic, 0, 0, None, *theirs)
    assert decoder(registry, "json-schema").decode(record) == data
    assert JSONDeserializer(None, schema_registry_client=official(registry))


def _shop() -> Any:
    """Return the file ``shop.proto`` in a pool of its own: Sale, with Line inside."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    file.message_type.add(name="Other")
    sale = file.message_type.add(name="Sale")
    sale.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    sale.nested_type.add(name="Empty")
    line = sale.nested_type.add(name="Line")
    line.field.add(name="sku", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


@pytest.mark.parametrize(
    ("name", "data"), [("Other", {}), ("Sale", {"id": "7"}), ("Sale.Line", {"sku": "ä"})]
)
def test_protobuf_is_written_and_read_as_by_the_official_serdes(registry, name, data):
    pool = _shop()
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))
    message = ParseDict(data, kind())
    topic = f"proto-{name}"
    conf = {"use.deprecated.format": False}
    more = {"auto.register.schemas": True, "use.latest.version": False}
    theirs = in_context(
        ProtobufSerializer(kind, official(registry), settings() | conf | more), message, topic
    )
    assert encoder(registry, "protobuf", topic=topic).encode(message, None) == theirs
    record: Record[Any] = Record(topic, 0, 0, None, *theirs)
    assert decoder(registry, "protobuf", kind).decode(record) == message
    assert decoder(registry, "protobuf").decode(record) == data
    read = ProtobufDeserializer(kind, conf)
    assert read(theirs[0], SerializationContext(topic, MessageField.VALUE)) == message


class Sold(msgspec.Struct):
    """As ``shop.Sale``, whose numbers of 64 bits are text in JSON."""

    id: int = 0


class Other(msgspec.Struct):
    """As ``shop.Other``, the first message of the file."""


@pytest.mark.parametrize("given", [7, 2**62, 0])
def test_a_struct_takes_the_numbers_of_protobuf_as_numbers(registry, given):
    kind = message_factory.GetMessageClass(_shop().FindMessageTypeByName("shop.Sale"))
    conf = settings() | {"use.deprecated.format": False, "auto.register.schemas": True}
    write = ProtobufSerializer(kind, official(registry), conf | {"use.latest.version": False})
    theirs = in_context(write, kind(id=given), "proto-structs")
    record: Record[Any] = Record("proto-structs", 0, 0, None, *theirs)
    assert decoder(registry, "protobuf", Sold).decode(record) == Sold(given)
    ours = encoder(registry, "protobuf", topic="proto-structs")
    assert ours.encode(Other(), None) == ours.encode({}, None)
