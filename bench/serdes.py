"""CPU a record of decoding and encoding, beside the bare codec: ``python -m bench.serdes``."""

import base64
import json
import time
from collections.abc import Callable
from io import SEEK_END, BytesIO
from typing import Any, NamedTuple

import jsonschema_rs
import msgspec
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict, ParseDict

from hapax.core.formats import Format, FormatOptions, RegistryOptions
from hapax.core.records import Output, Record
from hapax.processing.transform import form_of
from hapax.schemas.codec import Decoder, Encoder
from hapax.schemas.data import with_data
from hapax.schemas.lookup import lookup_of
from hapax.schemas.registry import Schema
from tests.kit.schema_registry import RegistryDouble

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "sku", "type": "string"},
                        {"name": "price", "type": "double"},
                        {"name": "count", "type": "int"},
                    ],
                },
            },
        },
    ],
}
DATA = {
    "id": 815,
    "customer": "c-4711",
    "lines": [{"sku": f"sku-{number}", "price": 1.25 * number, "count": 3} for number in range(3)],
}
PREFIX = b"\0\0\0\0\1"
RECORDS, ROUNDS = 300, 60
"""Short rounds, in turn: what else the machine does falls on all that is compared."""


def cpu_us(*works: Callable[[], object]) -> list[float]:
    """Return the least CPU time of one call of each in some rounds, in microseconds."""
    least = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for index, work in enumerate(works):
            began = time.process_time()
            for _ in range(RECORDS):
                work()
            least[index] = min(least[index], time.process_time() - began)
    return [1e6 * each / RECORDS for each in least]


class Case(NamedTuple):
    """One format: its schema, a value, and the same work by its library alone.

    bare  from the value to data, and from data to the same value
    what  the library does there
    """

    format: Format
    schema: Schema
    value: bytes
    bare: Callable[[bytes], bytes]
    what: str
    kind: Any = Any


def _avro() -> Case:
    parsed, out = parse_schema(ORDER), BytesIO(PREFIX)
    out.seek(0, SEEK_END)
    schemaless_writer(out, parsed, DATA)

    def bare(value: bytes) -> bytes:
        data: Any = schemaless_reader(BytesIO(value[5:]), parsed, None)
        to = BytesIO()
        to.write(PREFIX)
        schemaless_writer(to, parsed, data)
        return to.getvalue()

    schema = Schema(text=json.dumps(ORDER), id=1)
    return Case("avro", schema, out.getvalue(), bare, "fastavro")


def _protobuf(*, generated: bool) -> Case:
    """Return the case of a generated class, or that of dicts by the registry's descriptor."""
    file = _descriptor()
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Order"))
    prefix = PREFIX + b"\0"

    def messages(value: bytes) -> bytes:
        made: bytes = kind.FromString(value[6:]).SerializeToString()
        return prefix + made

    def dicts(value: bytes) -> bytes:
        data = MessageToDict(kind.FromString(value[6:]), preserving_proto_field_name=True)
        made: bytes = ParseDict(data, kind()).SerializeToString()
        return prefix + made

    serialized = base64.b64encode(file.SerializeToString()).decode()
    schema = Schema(text="", kind="PROTOBUF", id=1, serialized=serialized)
    value = prefix + ParseDict(DATA, kind()).SerializeToString()
    if generated:
        what = "FromString and SerializeToString"
        return Case("protobuf", schema, value, messages, what, kind)
    return Case("protobuf", schema, value, dicts, "the same with MessageToDict and ParseDict")


def _descriptor() -> Any:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="bench", syntax="proto3")
    order, line = file.message_type.add(name="Order"), file.message_type.add(name="Line")
    for message, fields in (
        (order, (("id", field.TYPE_INT64), ("customer", field.TYPE_STRING))),
        (
            line,
            (("sku", field.TYPE_STRING), ("price", field.TYPE_DOUBLE), ("count", field.TYPE_INT32)),
        ),
    ):
        for number, (name, kind) in enumerate(fields, start=1):
            message.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
    order.field.add(
        name="lines",
        number=3,
        type=field.TYPE_MESSAGE,
        type_name=".bench.Line",
        label=field.LABEL_REPEATED,
    )
    return file


def _json_schema() -> Case:
    line = {"sku": _of("string"), "price": _of("number"), "count": _of("integer")}
    lines = {"type": "array", "items": _object(line)}
    whole = _object({"id": _of("integer"), "customer": _of("string"), "lines": lines})
    validate = jsonschema_rs.validator_for(whole).validate

    def bare(value: bytes) -> bytes:
        data = msgspec.json.decode(value[5:])
        validate(data)
        validate(data)
        return PREFIX + msgspec.json.encode(data)

    value = PREFIX + msgspec.json.encode(DATA)
    schema = Schema(text=json.dumps(whole), kind="JSON", id=1)
    return Case("json-schema", schema, value, bare, "msgspec, and jsonschema-rs once on each side")


def _of(kind: str) -> dict[str, Any]:
    return {"type": kind}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }


def main() -> None:
    cases = (_avro(), _protobuf(generated=True), _protobuf(generated=False), _json_schema())
    for case in cases:
        _measure(case)
    avro = cases[0]
    least, theirs = cpu_us(lambda: avro.bare(avro.value), _official(avro.value))
    print(f"avro, serdes of confluent-kafka: {theirs / least:.2f}")


def _measure(case: Case) -> None:
    options = FormatOptions(
        input=case.format,
        output=case.format,
        topic=f"out-{case.what}",
        registry=RegistryOptions(url=(f"memory:{case.what}",)),
    )
    lookup = lookup_of(options)
    lookup.add("id:1", case.schema)
    lookup.add(f"subject:{options.topic}-value", case.schema)
    record: Record[Any] = Record("in", 0, 0, b"k", case.value)
    decoder, encoder = Decoder(options, lookup, case.kind), Encoder(options, lookup)

    def bare() -> object:
        return case.bare(case.value)

    def codec() -> object:
        return encoder.encode(decoder.decode(record), None)

    generic: Any = Record

    def pass_on(given: Record) -> Output:
        return Output(given.data)

    pass_on.__annotations__["given"] = generic[case.kind]
    whole = with_data(form_of(pass_on), options).function
    assert codec() == (bare(), ()) == (case.value, ())
    least, spent, called = cpu_us(bare, codec, lambda: whole(record))
    print(
        f"{case.format}: {spent:.2f} µs, bare {least:.2f} µs: {spent / least:.2f},"
        f" with the call {called / least:.2f} (bare: {case.what})"
    )


def _official(value: bytes) -> Callable[[], object]:
    registry = RegistryDouble()
    registry.add("out-value", ORDER)
    client = SchemaRegistryClient({"url": registry.url})
    names = {"subject.name.strategy": topic_subject_name_strategy}
    latest = {"auto.register.schemas": False, "use.latest.version": True}
    read, write = AvroDeserializer(client, conf=names), AvroSerializer(client, conf=names | latest)
    context = SerializationContext("out", MessageField.VALUE)

    def both() -> object:
        return write(read(value, context), context)

    both()
    return both


if __name__ == "__main__":
    main()
