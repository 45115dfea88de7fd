"""A function with data, without a registry; generated values against the official serdes."""

import base64
import json
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import msgspec
import pydantic
import pytest
from confluent_kafka.schema_registry import (
    Schema as Given,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer as in_header,
    prefix_schema_id_serializer as in_prefix,
    topic_subject_name_strategy as by_topic,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.common.protobuf import _init_pool
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings, strategies as st

from hapax import Output, Record
from hapax.core.errors import ConfigurationError, Poison, SchemasUnavailableError
from hapax.core.formats import Format, FormatOptions, RegistryOptions
from hapax.core.headers import VALUE_SCHEMA
from hapax.schemas import avro, json_schema
from hapax.schemas.codec import Decoder, Encoder
from hapax.schemas.lookup import Lookup
from hapax.schemas.registry import Referred, Schema
from hapax.testing import Pipeline
from tests.kit.priced import Order, price, price_all, price_later
from tests.unit.test_avro_unions import bytes_of, schemas, unnamed

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string", "default": ""}],
}
TOTAL: dict[str, Any] = {
    "type": "record",
    "name": "Total",
    "fields": [{"name": "id", "type": "long"}, {"name": "total", "type": "long"}],
}
SCHEMAS = {"input-value": ORDER, "output-value": TOTAL}
AVRO = {"HAPAX_INPUT__FORMAT": "avro", "HAPAX_OUTPUT__FORMAT": "avro"}
JSON = {"HAPAX_INPUT__FORMAT": "json", "HAPAX_OUTPUT__FORMAT": "json"}


class Checked(pydantic.BaseModel):
    id: int
    name: str


def one_of_pydantic(record: Record[Checked]) -> Checked:
    return record.data


def one_of_msgspec(record: Record[Order]) -> Order:
    return msgspec.structs.replace(record.data, name="b")


def one_dict(record: Record) -> dict[str, Any]:
    return dict(record.data)


@pytest.mark.parametrize("function", [price, price_later, price_all])
def test_data_of_avro_comes_in_and_goes_out_in_every_form(function):
    with Pipeline(function, AVRO, schemas=SCHEMAS) as pipeline:
        result = pipeline.run({"id": 1, "name": ""}, {"id": 2, "name": "x"})
        found = [pipeline.schemas.data(one) for one in result.outputs]
    assert found == [{"id": 1, "total": 2}, {"id": 2, "total": 4}]
    assert [one.value for one in result.outputs] == [b"\0\0\0\0\2\2\4", b"\0\0\0\0\2\4\x08"]


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (one_of_pydantic, b'{"id":1,"name":"a"}'),
        (one_of_msgspec, b'{"id":1,"name":"b"}'),
        (one_dict, b'{"id":1,"name":"a"}'),
    ],
)
def test_the_annotation_names_the_type_of_the_data(function, value):
    result = Pipeline(function, JSON).run(b'{"id": 1, "name": "a"}', b'{"id": "no"}', b"{")
    assert result.values()[0] == value
    reasons = [one.error for one in result.dead_letters]
    assert len(reasons) >= 1 + (function is not one_dict)
    assert all(reason.startswith("Poison: it is no JSON of the type") for reason in reasons)


def test_avro_becomes_msgspec_and_pydantic_types_and_comes_back():
    schemas = {"input-value": ORDER, "output-value": ORDER}
    for function in (one_of_pydantic, one_of_msgspec, one_dict):
        pipeline = Pipeline(function, AVRO, schemas=schemas)
        (output,) = pipeline.run({"id": 7, "name": "b"}).outputs
        assert pipeline.schemas.data(output) == {"id": 7, "name": "b"}


def test_without_a_function_values_are_converted_from_one_format_to_the_other():
    settings = {"HAPAX_INPUT__FORMAT": "avro", "HAPAX_OUTPUT__FORMAT": "json"}
    result = Pipeline(None, settings, schemas=SCHEMAS).run({"id": 1, "name": "a"}, None)
    assert result.values() == [b'{"id":1,"name":"a"}', None]


def test_an_output_that_does_not_fit_its_schema_is_the_poison_of_its_record_alone():
    def wrong(record: Record[Order]) -> Any:
        if record.data.id == 2:
            return {"id": "two"}
        return Output({"id": record.data.id, "total": 0}, key=b"k")

    pipeline = Pipeline(wrong, AVRO, schemas=SCHEMAS)
    result = pipeline.run(*({"id": number, "name": ""} for number in (1, 2, 3)))
    assert [pipeline.schemas.data(one)["id"] for one in result.outputs] == [1, 3]
    assert {one.key for one in result.outputs} == {b"k"}
    (letter,) = result.dead_letters
    assert letter.error.startswith("Poison: its output does not fit the schema of output")
    assert result.calls[letter.source] == 1


def test_a_number_that_json_lacks_is_the_poison_of_its_record_and_no_null():
    answers = {b"1": float("nan"), b"2": [None, {"a": float("inf")}], b"3": None, b"4": "null"}
    result = Pipeline(lambda record: {"a": answers[record.value or b""]}, JSON).run(*answers)
    assert result.values() == [b'{"a":null}', b'{"a":"null"}']
    assert ["no number of JSON" in one.error for one in result.dead_letters] == [True, True]


@pytest.mark.parametrize("answer", [b"raw", [b"raw"], Output(b"raw")])
def test_bytes_are_written_as_they_are(answer):
    pipeline = Pipeline(lambda _record: answer, AVRO, schemas=SCHEMAS)
    assert pipeline.run({"id": 1, "name": ""}).values() == [b"raw"]


@pytest.mark.parametrize("settings", [{}, {"HAPAX_INPUT__FORMAT": "json"}])
def test_a_dict_without_a_format_of_outputs_stops_the_pipeline_and_names_the_setting(settings):
    with pytest.raises(ConfigurationError, match="HAPAX_OUTPUT__FORMAT is not set"):
        Pipeline(lambda _record: {"id": 1}, settings).run(b"{}")


def test_the_header_of_the_inputs_schema_is_not_that_of_an_output_with_another_value():
    pipeline = Pipeline(price, AVRO, schemas=SCHEMAS)
    pipeline.send(b"\2\0", headers=[("__value_schema_id", b"\0\0\0\0\1"), ("other", b"x")])
    (output,) = pipeline.run().outputs
    names = [name for name, _value in output.headers]
    assert "other" in names
    assert "__value_schema_id" not in names


def test_a_schema_that_the_test_has_not_given_is_named():
    pipeline = Pipeline(price, AVRO, schemas=SCHEMAS)
    with pytest.raises(SchemasUnavailableError, match="schema 9"):
        pipeline.run(b"\0\0\0\0\x09\2\0")


@pytest.mark.parametrize("name", ["json", "json-schema"])
def test_a_byte_order_mark_before_json_is_passed_over(name):
    settings = {"HAPAX_INPUT__FORMAT": name, "HAPAX_OUTPUT__FORMAT": "json"}
    head = b"\0\0\0\0\1" if name == "json-schema" else b""
    pipeline = Pipeline(None, settings, schemas={"input-value": {}})
    assert pipeline.run(head + b'\xef\xbb\xbf{"id":1}').values() == [b'{"id":1}']


@pytest.mark.parametrize("digits", [b"18446744073709551617", b"-9223372036854775809"])
def test_a_whole_number_of_json_schema_beyond_64_bits_keeps_its_digits(digits):
    schema: dict[str, Any] = {"type": "object", "properties": {"id": {"type": "integer"}}}
    settings = {"HAPAX_INPUT__FORMAT": "json-schema", "HAPAX_OUTPUT__FORMAT": "json-schema"}
    schemas = {"input-value": schema, "output-value": schema}
    with Pipeline(one_dict, settings, schemas=schemas) as pipeline:
        result = pipeline.run(b'\0\0\0\0\1{"id":%b}' % digits)
    assert [(one.value or b"")[5:] for one in result.outputs] == [b'{"id":%b}' % digits]


DRAFT_7 = "http://json-schema.org/draft-07/schema#"


class Colour(StrEnum):
    RED = "red"


class Name(str):
    __slots__ = ()


def schema(content: object, *references: Referred) -> Schema:
    return Schema(text=json.dumps(content), kind="JSON", references=references)


def fits(content: object, text: str, *references: Referred) -> bool:
    read = json_schema.reader(schema(content, *references))
    try:
        read(text.encode())
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("content", "good", "bad"),
    [
        ({"$schema": "http://json-schema.org/draft-04/schema#",
          "maximum": 3, "exclusiveMaximum": True}, "2", "3"),
        ({"$schema": "http://json-schema.org/draft-06/schema#", "exclusiveMaximum": 3}, "2", "3"),
        ({"$schema": DRAFT_7, "if": {"const": 1}, "else": False}, "1", "2"),
        ({"$schema": "https://json-schema.org/draft/2019-09/schema",
          "dependentRequired": {"a": ["b"]}}, '{"b": 1}', '{"a": 1}'),
        ({"prefixItems": [{"type": "string"}], "items": False}, '["a"]', '["a", 1]'),
        ({"$schema": "https://schemas.example.com/own", "type": "string"}, '"a"', "1"),
        ({"const": 2**64 + 1}, str(2**64 + 1), str(2**64)),
        ({"multipleOf": 0.01}, "4.35", "4.355"),
        ({"pattern": r"^\p{L}+$"}, '"Größe"', '"1"'),
    ],
)  # fmt: skip
def test_each_draft_is_checked_by_its_own_rules(content, good, bad):
    assert fits(content, good)
    assert not fits(content, bad)


@pytest.mark.parametrize(
    "keyword", [{"format": "date"}, {"contentEncoding": "base64"}, {"contentMediaType": "a/json"}]
)
def test_formats_and_contents_assert_nothing(keyword):
    assert fits({"$schema": DRAFT_7, "type": "string", **keyword}, '"$$ {"')


def test_a_reference_is_one_of_those_in_the_registry():
    price = Referred("price.json", json.dumps({"$ref": "amount.json"}))
    amount = Referred("amount.json", json.dumps({"type": "integer", "minimum": 0}))
    content = {"properties": {"price": {"$ref": "price.json"}}}
    assert fits(content, '{"price": 5}', amount, price)
    assert not fits(content, '{"price": -5}', amount, price)


AT = "https://shop.example/s/"


@pytest.mark.parametrize(
    ("own", "ref", "name", "other"),
    [
        (f"{AT}order.json", "item.json", "item.json", None),
        (f"{AT}order.json", "../t/item.json", "../t/item.json", None),
        (f"{AT}order.json", f"{AT}item.json", "item.json", None),
        (f"{AT}order.json", "item.json", "item.json", "https://other.example/item.json"),
        (None, f"{AT}item.json", "item.json", f"{AT}item.json"),
        ("order.json", "item.json", "item.json", None),
        ("urn:shop:order", "item.json", "item.json", "urn:shop:item"),
    ],
)
@pytest.mark.parametrize("key", ["$id", "id"])
def test_a_reference_is_relative_to_the_id_of_its_schema(own, ref, name, other, key):
    draft = {"$schema": "http://json-schema.org/draft-04/schema#"} if key == "id" else {}
    item = {**draft, "$ref": "sku.json"} | ({key: other} if other else {})
    order = {**draft, "properties": {"item": {"$ref": ref}}} | ({key: own} if own else {})
    referred = Referred("sku.json", '{"type": "string"}'), Referred(name, json.dumps(item))
    assert fits(order, '{"item": "a"}', *referred)
    assert not fits(order, '{"item": 1}', *referred)


@pytest.mark.parametrize("where", ["http://127.0.0.1:9/x.json", "file:///etc/hostname", "x.json"])
def test_a_reference_to_anything_else_is_an_error_and_nothing_is_fetched(where, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", None)
    with pytest.raises(ValueError, match="not present in a registry"):
        json_schema.reader(schema({"$ref": where}))


def test_a_schema_that_breaks_the_rules_of_its_draft_is_refused():
    with pytest.raises(ValueError, match="nope"):
        json_schema.reader(schema({"$schema": DRAFT_7, "type": "nope"}))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"a": 2**70}, b'{"a":1180591620717411303424}'),
        ({"a": Decimal("1.50")}, b'{"a":1.50}'),
        ({"a": datetime(2026, 1, 2, tzinfo=UTC)}, b'{"a":"2026-01-02T00:00:00Z"}'),
        ({"a": Colour.RED, "b": Name("x")}, b'{"a":"red","b":"x"}'),
        ({"a": (1, None, True, "é")}, '{"a":[1,null,true,"é"]}'.encode()),
    ],
)
def test_data_is_written_as_it_was_checked(data, text):
    assert json_schema.writer(schema({}), b"\0")(data) == b"\0" + text


@pytest.mark.parametrize(
    ("content", "data"),
    [
        ({"additionalProperties": {"type": "number"}}, {"a": float("nan")}),
        ({"additionalProperties": {"type": "string"}}, {"a": Decimal(1)}),
        ({}, {"a": [Decimal("NaN"), Decimal("1e999")]}),
        ({}, {"a": ({"b": float("-inf")},)}),
        ({}, {"a": "\ud800"}),
        ({}, {"a": object()}),
        ({}, {1: "a"}),
    ],
)
def test_what_does_not_fit_or_is_no_json_is_an_error(content, data):
    with pytest.raises((ValueError, TypeError)):
        json_schema.writer(schema(content), b"")(data)


# -- generated: the official serdes, in both directions ----------------------------------------


class Both:
    """One schema of topic ``t`` in a registry in memory, for the official serdes and for ours."""

    def __init__(
        self, kind: Format, text: str, *referred: Referred, header: bool = False, data: Any = Any
    ) -> None:
        name = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}[kind]
        self.client = SchemaRegistryClient.new_client({"url": "mock://"})
        for one in referred:
            self.client.register_schema(one.name, Given(one.text, name))
        references = [SchemaReference(one.name, one.name, 1) for one in referred]
        found = self.client.register_schema_full_response("t-value", Given(text, name, references))
        guid = (found.guid or "").replace("-", "")
        schema = Schema(text=text, kind=name, id=1, guid=guid, references=referred, serialized=text)
        options = RegistryOptions(placement="header" if header else "prefix")
        formats = FormatOptions(input=kind, output=kind, topic="t", registry=options)
        lookup = Lookup(options)
        for key in (f"id:{found.schema_id}", f"guid:{guid}", "subject:t-value"):
            lookup.add(key, msgspec.structs.replace(schema, id=found.schema_id))
        self.decoder, self.encoder = Decoder(formats, lookup, data), Encoder(formats, lookup)
        self._head = bytes([0]) + (found.schema_id or 0).to_bytes(4, "big")
        self._mark = ((VALUE_SCHEMA, bytes([1]) + bytes.fromhex(guid)),) if header else ()
        self.reading: dict[str, Any] = {"subject.name.strategy": by_topic}
        self.conf: dict[str, Any] = {
            "auto.register.schemas": False,
            "use.latest.version": True,
            "subject.name.strategy": by_topic,
            "schema.id.serializer": in_header if header else in_prefix,
        }

    def record(self, content: bytes) -> Record[Any]:
        return Record("t", 0, 0, None, content if self._mark else self._head + content, self._mark)

    def theirs(self, write: Any, data: Any) -> Record[Any] | None:
        """Return the record of an official serializer; None: it refuses."""
        headers: list[Any] = []
        try:
            value = write(data, SerializationContext("t", MessageField.VALUE, headers))
        except Exception:  # noqa: BLE001 - each has errors of its own
            return None
        return Record("t", 0, 0, None, value, tuple(headers))

    def ours(self, data: Any) -> Record[Any] | None:
        try:
            value, headers = self.encoder.encode(data, None)
        except Poison:
            return None
        return Record("t", 0, 0, None, value, headers)

    def plain(self, record: Record[Any]) -> tuple[bytes, Any]:
        return (record.value or b"").replace(b"e+", b"e"), record.headers

    def read(self, read: Any, record: Record[Any]) -> Any:
        headers: list[Any] = list(record.headers)
        return read(record.value, SerializationContext("t", MessageField.VALUE, headers))


FEW, MANY = (settings(max_examples=n, deadline=None, derandomize=True) for n in (30, 60))


@st.composite
def unions_of_references(draw: st.DrawFn) -> tuple[list[str], list[Any], bytes]:
    """Return the union, the records that it names, and an encoding of any of its data."""
    numbers: list[int] = []
    names = ["r.A", "r.B"]
    records = [
        {
            "type": "record",
            "name": name,
            "fields": [{"name": "v", "type": draw(schemas(1, numbers))}],
        }
        for name in names
    ]
    return ["null", *names], records, bytes_of(draw, ["null", *records])


@given(unions_of_references(), st.booleans(), st.booleans())
@FEW
def test_generated_avro_is_read_as_by_the_official_serdes_and_written_back(drawn, top, header):
    union, records, content = drawn
    outer = {"type": "record", "name": "r.C", "fields": [{"name": "v", "type": union}]}
    referred = [Referred(one["name"], json.dumps(one)) for one in records]
    both = Both("avro", json.dumps(union if top else outer), *referred, header=header)
    record = both.record(content)
    found = both.decoder.decode(record)
    if len(record.value or b"") > 5:  # shorter ones are refused by theirs, also with a header
        theirs = both.read(AvroDeserializer(both.client, conf=both.reading), record)
        assert repr(unnamed(found)) == repr(theirs)
    if found is not None:  # a value of null is a tombstone
        assert both.ours(found) == record


NUMBER = st.integers() | st.integers(-(2**65), 2**65) | st.sampled_from([2**31, 2**63, -(2**63)])
DATE = st.dates() | st.datetimes() | st.datetimes(timezones=st.just(UTC))
FINITE: Any = {"allow_nan": False, "allow_infinity": False}
DECIMAL = st.decimals(**FINITE) | st.decimals(-1000, 1000, places=4)
FIXED = {"type": "fixed", "name": "x.Fixed", "size": 6}
LOGICAL: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("int", NUMBER),
    ("long", NUMBER),
    ("double", st.floats() | NUMBER),
    ("float", st.floats(width=32)),
    ("string", st.text()),
    ({"type": "int", "logicalType": "date"}, DATE),
    ({"type": "int", "logicalType": "time-millis"}, st.times()),
    ({"type": "long", "logicalType": "time-micros"}, st.times()),
    ({"type": "long", "logicalType": "timestamp-millis"}, DATE),
    ({"type": "long", "logicalType": "timestamp-micros"}, DATE),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, DATE),
    ({"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 4}, DECIMAL),
    ({**FIXED, "logicalType": "decimal", "precision": 9, "scale": 4}, DECIMAL),
    ({"type": "string", "logicalType": "uuid"}, st.uuids()),
]


@given(st.data(), st.sampled_from(LOGICAL), st.booleans())
@MANY
def test_values_of_avro_of_any_size_are_written_read_and_refused_as_by_the_official_serdes(
    data, logical, union
):
    kind, values = logical
    field = {"name": "v", "type": ["null", kind] if union else kind}
    wide = json.dumps({"type": "record", "name": "x.Wide", "fields": [field]})
    both, given_ = Both("avro", wide), {"v": data.draw(values)}
    theirs = both.theirs(AvroSerializer(both.client, conf=both.conf), given_)
    if kind == "int" and not -(2**31) <= given_["v"] < 2**31:
        assert both.ours(given_) is None  # theirs are bytes that Java reads as another number
        return
    assert both.ours(given_) == theirs
    if theirs is not None:
        read = both.read(AvroDeserializer(both.client, conf=both.reading), theirs)
        assert repr(both.decoder.decode(theirs)) == repr(read)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 19.99),
        ("int", True),
        ("long", 1.5),
        ("boolean", "false"),
        ("boolean", None),
        ("float", 1e300),
        ("double", "1"),
        ({"type": "array", "items": "int"}, [1, 2.5]),
        ({"type": "map", "values": "boolean"}, {"a": 0}),
        ({"type": "string", "logicalType": "uuid"}, 7),
    ],
)
def test_a_value_of_avro_that_its_type_does_not_have_is_refused_and_not_changed(kind, value):
    narrow = {"type": "record", "name": "x.Narrow", "fields": [{"name": "v", "type": kind}]}
    assert Both("avro", json.dumps(narrow)).ours({"v": value}) is None


EVOLVED = [
    ("int", ["long", "float", "double", ["null", "int"]]),
    ("string", ["bytes", ["null", "string"]]),
    ("float", ["double"]),
]


@given(st.data(), st.sampled_from(EVOLVED), st.booleans(), st.booleans())
@FEW
def test_evolved_avro_is_resolved_as_by_the_official_deserializer(data, evolved, more, less):
    before, after = evolved
    added = [{"name": "n", "type": ["null", "long"], "default": None}]
    fields = [{"name": "v", "type": before}, *([{"name": "o", "type": "string"}] if less else [])]
    resolved = [*(added if more else []), {"name": "v", "type": data.draw(st.sampled_from(after))}]
    text, to = (
        json.dumps({"type": "record", "name": "x.E", "fields": each}) for each in (fields, resolved)
    )
    value = {"int": 7, "string": "ab", "float": 1.5}[before]
    both = Both("avro", text)
    record = both.ours({"v": value, **({"o": "x"} if less else {})})
    assert record is not None
    assert record.value is not None
    read = AvroDeserializer(both.client, to, conf=both.reading)
    assert avro.reader(Schema(text=text), to)(record.value[5:]) == both.read(read, record)


@given(
    st.recursive(
        # Theirs write null for what is no JSON, as NaN, and refuse whole numbers beyond 64 bits.
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(**FINITE) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
    st.booleans(),
)
@MANY
def test_json_of_any_size_is_written_read_and_refused_as_by_the_official_serdes(value, header):
    refers = '{"properties": {"n": {"$ref": "n.json"}}}'
    both = Both("json-schema", refers, Referred("n.json", '{"maximum": 5}'), header=header)
    write = JSONSerializer(None, both.client, conf=both.conf)
    read = JSONDeserializer(None, schema_registry_client=both.client, conf=both.reading)
    for data in ({"v": value}, {"n": value}):
        theirs, ours = both.theirs(write, data), both.ours(data)
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert both.plain(ours) == both.plain(theirs)  # but for 1e16 and 1e+16
            assert repr(both.decoder.decode(theirs)) == repr(both.read(read, theirs))
            assert repr(both.read(read, ours)) == repr(data)


def _sale() -> Any:
    """Return the messages of a file whose imports no registry has references for."""
    file = descriptor_pb2.FileDescriptorProto(name="sale.proto", package="shop", syntax="proto3")
    known = ("google/protobuf/timestamp", "google/protobuf/api", "google/type/date")
    file.dependency.extend(f"{name}.proto" for name in (*known, "confluent/types/decimal"))
    file.dependency.append("confluent/meta.proto")
    kind, sale = descriptor_pb2.FieldDescriptorProto, file.message_type.add(name="Sale")
    scalars = [
        kind.TYPE_INT32,
        kind.TYPE_INT64,
        kind.TYPE_UINT64,
        kind.TYPE_SINT64,
        kind.TYPE_BYTES,
    ]
    scalars += [kind.TYPE_STRING, kind.TYPE_DOUBLE, kind.TYPE_BOOL, kind.TYPE_FIXED32]
    for number, each in enumerate(scalars, 1):
        sale.field.add(name=f"f{number}", number=number, type=each, label=1 + 2 * (number % 2))
    for number, name in enumerate(
        ("google.protobuf.Timestamp", "google.type.Date", "confluent.type.Decimal", "shop.Sale"), 20
    ):
        sale.field.add(name=f"f{number}", number=number, type=11, type_name=f".{name}", label=1)
    for name in ("Empty", "Line"):
        inner = sale.nested_type.add(name=name)
        inner.nested_type.add(name="Deep").field.add(name="a", number=1, type=3, label=1)
    file.message_type.add(name="Other")
    pool = descriptor_pool.DescriptorPool()
    _init_pool(pool)
    pool.Add(file)
    return pool, base64.b64encode(file.SerializeToString()).decode()


POOL, SALE_FILE = _sale()
DAYS = {"seconds": st.integers(-62135596800, 253402300799), "nanos": st.integers(0, 999_999_999)}
SCALARS = [
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.binary(),
    st.text(),
    st.floats(),
    st.booleans(),
    st.integers(0, 2**32 - 1),
]
SALES: dict[str, st.SearchStrategy[Any]] = {
    **{
        f"f{number}": st.lists(each, max_size=3) if number % 2 else each
        for number, each in enumerate(SCALARS, 1)
    },
    "f20": st.fixed_dictionaries({}, optional=DAYS),
    "f21": st.fixed_dictionaries({}, optional={"year": SCALARS[0], "day": SCALARS[0]}),
    "f22": st.fixed_dictionaries({}, optional={"value": st.binary(), "scale": SCALARS[0]}),
    "f23": st.fixed_dictionaries({}, optional={"f2": SCALARS[1]}),
}
MESSAGES: dict[str, st.SearchStrategy[Any]] = {
    "Sale": st.fixed_dictionaries({}, optional=SALES),
    "Sale.Empty": st.just({}),
    "Sale.Line.Deep": st.fixed_dictionaries({}, optional={"a": SCALARS[1]}),
    "Other": st.just({}),
}


@given(st.data(), st.sampled_from(sorted(MESSAGES)), st.booleans())
@MANY
def test_protobuf_of_any_message_and_size_is_written_and_read_as_by_the_official_serdes(
    data, name, header
):
    kind = message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"shop.{name}"))
    message, both = kind(**data.draw(MESSAGES[name])), Both("protobuf", SALE_FILE, header=header)
    conf = both.conf | {"auto.register.schemas": True, "use.latest.version": False}
    theirs = both.theirs(ProtobufSerializer(kind, both.client, conf), message)
    assert theirs is not None
    found = both.decoder.decode(theirs)
    assert found == MessageToDict(message, preserving_proto_field_name=True)
    assert both.read(ProtobufDeserializer(kind, both.reading, both.client), theirs) == message
    assert Both("protobuf", SALE_FILE, header=header, data=kind).decoder.decode(theirs) == message
    if not header:  # written by prefix alone
        assert both.ours(message) == theirs
        assert name != "Sale" or both.ours(found) == theirs


class Sold(msgspec.Struct, omit_defaults=True):
    """As the first message, whose numbers of 64 bits, bytes and times are text in JSON."""

    f2: int = 0
    f5: list[bytes] = []
    f20: datetime | None = None
    price: Decimal | None = None


@pytest.mark.parametrize("number", [7, 2**62, 0])
def test_a_struct_takes_the_numbers_of_protobuf_as_numbers(number):
    both = Both("protobuf", SALE_FILE, data=Sold)
    kind = message_factory.GetMessageClass(POOL.FindMessageTypeByName("shop.Sale"))
    record = both.ours(kind(f2=number, f5=[b"a"], f20={"seconds": 1}))
    assert record is not None
    sold = Sold(number, [b"a"], datetime.fromtimestamp(1, UTC))
    assert both.decoder.decode(record) == sold
    assert both.ours(sold) == record


def test_a_struct_takes_what_is_text_in_json_and_every_digit_of_a_decimal():
    both, digits = Both("json-schema", "{}", data=Sold), "12345678901234567.89"
    text = f'{{"f5":["YQ=="],"f20":"1970-01-01T00:00:01Z","price":{digits}}}'
    sold = Sold(0, [b"a"], datetime.fromtimestamp(1, UTC), Decimal(digits))
    assert both.decoder.decode(both.record(text.encode())) == sold
