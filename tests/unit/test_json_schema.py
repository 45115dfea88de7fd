"""JSON Schema: what is checked of data, in which words of JSON it is written, and what is not."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum

import pytest

from hapax.schemas import json_schema
from hapax.schemas.registry import Referred, Schema

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
