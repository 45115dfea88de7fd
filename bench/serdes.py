"""CPU a record of decoding and encoding, beside the bare codec: ``python -m bench.serdes``."""

from __future__ import annotations

import json
import time
from io import BytesIO
from typing import TYPE_CHECKING, Any

from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from hapax.core.formats import FormatOptions, RegistryOptions
from hapax.core.forms import form_of
from hapax.core.records import Output, Record
from hapax.schemas.codec import Decoder, Encoder
from hapax.schemas.data import with_data
from hapax.schemas.lookup import lookup_of
from hapax.schemas.registry import Schema
from tests.kit.schema_registry import RegistryDouble

if TYPE_CHECKING:
    from collections.abc import Callable

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
RECORDS, ROUNDS = 20_000, 5


def cpu_us(work: Callable[[], object]) -> float:
    """Return the least CPU time of one call in some rounds, in microseconds."""
    least = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(RECORDS):
            work()
        least = min(least, time.process_time() - began)
    return 1e6 * least / RECORDS


def main() -> None:
    """Print the figures."""
    parsed = parse_schema(ORDER)
    out = BytesIO()
    schemaless_writer(out, parsed, DATA)
    body = out.getvalue()
    options = FormatOptions(
        input="avro", output="avro", topic="out", registry=RegistryOptions(urls=("memory:bench",))
    )
    schema = Schema(text=json.dumps(ORDER), id=1)
    lookup = lookup_of(options)
    lookup.add("id:1", schema)
    lookup.add("subject:out-value", schema)
    record: Record[Any] = Record("in", 0, 0, b"k", b"\0\0\0\0\1" + body)
    decoder, encoder = Decoder(options, lookup, Any), Encoder(options, lookup)

    def bare() -> bytes:
        data: Any = schemaless_reader(BytesIO((record.value or b"")[5:]), parsed, None)
        to = BytesIO()
        to.write(b"\0\0\0\0\1")
        schemaless_writer(to, parsed, data)
        return to.getvalue()

    def codec() -> object:
        return encoder.encode(decoder.decode(record), None)

    def pass_on(given: Record[Any]) -> Output:
        return Output(given.data)

    whole = with_data(form_of(pass_on), options).function
    assert codec() == (bare(), ())
    least = cpu_us(bare)
    for name, work in (("codec", codec), ("with the call", lambda: whole(record))):
        spent = cpu_us(work)
        print(f"{name}: {spent:.2f} µs, bare fastavro {least:.2f} µs: {spent / least:.2f}")
    print(f"official serdes: {cpu_us(_official(record.value or b'')) / least:.2f}")


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
