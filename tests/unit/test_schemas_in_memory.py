"""A function with data, tested without a registry."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import msgspec
import pydantic
import pytest

from hapax import Output, Record
from hapax.core.errors import SchemasUnavailableError
from hapax.schemas import json_schema
from hapax.schemas.registry import Referred, Schema
from hapax.testing import Pipeline
from tests.kit.priced import Order, price, price_all, price_later

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


def test_bytes_are_written_as_they_are_and_data_without_a_format_is_poison():
    pipeline = Pipeline(lambda _record: Output(b"raw"), AVRO, schemas=SCHEMAS)
    result = pipeline.run({"id": 1, "name": ""})
    assert result.values() == [b"raw"]
    (letter,) = Pipeline(lambda _record: Output({"id": 1})).run(b"x").dead_letters
    assert "Output.value must be bytes or None, not dict" in letter.error


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
    result = Pipeline(None, settings, schemas={"input-value": {}}).run(
        head + b'\xef\xbb\xbf{"id":1}'
    )
    assert result.values() == [b'{"id":1}']


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
        ({}, {"a": "\ud800"}),
        ({}, {"a": object()}),
        ({}, {1: "a"}),
    ],
)
def test_what_does_not_fit_or_is_no_json_is_an_error(content, data):
    with pytest.raises((ValueError, TypeError)):
        json_schema.writer(schema(content), b"")(data)
