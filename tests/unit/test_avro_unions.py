"""Unions of Avro: data that came in a branch leaves in it, and what names none is not guessed."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import msgspec
import pydantic
import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given, settings, strategies as st

from hapax import Output, Record
from hapax.schemas.avro import reader, writer
from hapax.schemas.registry import Referred, Schema
from hapax.testing import Pipeline

AVRO = {"HAPAX_INPUT__FORMAT": "avro", "HAPAX_OUTPUT__FORMAT": "avro"}
CREATED, DELETED = (
    {"type": "record", "name": f"x.{name}", "fields": [{"name": "id", "type": "string"}]}
    for name in ("Created", "Deleted")
)
COLOUR = {"type": "enum", "name": "x.Colour", "symbols": ["RED", "BLUE"]}
HASH = {"type": "fixed", "name": "x.Hash", "size": 2}
NUMBERS = {"type": "array", "items": "int"}
MAP = {"type": "map", "values": "string"}


def schema_of(schema: Any, *references: Any) -> Schema:
    referred = tuple(Referred(name=one["name"], text=json.dumps(one)) for one in references)
    return Schema(text=json.dumps(schema), id=1, references=referred)


def in_field(union: list[Any]) -> dict[str, Any]:
    return {"type": "record", "name": "x.Event", "fields": [{"name": "v", "type": union}]}


def encoded(schema: Any, data: Any) -> bytes:
    return writer(schema_of(schema), b"")(data)


# -- generated: unions and data of every branch ------------------------------------------------

LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=3) | st.sampled_from(["RED", "BLUE"]),
    "bytes": st.binary(max_size=3),
}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2, names: list[int] | None = None) -> Any:
    """Schemas with unions in records, arrays and maps, and with types that are named again."""
    names = [] if names is None else names
    kinds = [
        *LEAVES,
        "enum",
        "fixed",
        *(["record", "array", "map", "union", "union"] if depth else []),
    ]
    kind = draw(st.sampled_from(kinds))
    if kind == "union":
        count = draw(st.integers(2, 5))
        found: dict[str, Any] = {}
        for _ in range(count):
            branch = draw(schemas(depth - 1, names))
            if isinstance(branch, list):
                continue
            word = branch.get("name", branch["type"]) if isinstance(branch, dict) else branch
            found.setdefault(str(word), branch)
        return list(found.values()) or "null"
    if kind in LEAVES:
        return kind
    if kind in {"array", "map"}:
        inner = draw(schemas(depth - 1, names))
        return {"type": kind, "items" if kind == "array" else "values": inner}
    name = f"n{'.x' * draw(st.integers(0, 1))}.T{len(names)}"
    names.append(1)
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["RED", "BLUE"]}
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": draw(st.integers(1, 3))}
    fields = [
        {"name": member, "type": draw(schemas(depth - 1, names))}
        for member in draw(st.lists(st.sampled_from("abc"), max_size=2, unique=True))
    ]
    return {"type": "record", "name": name, "fields": fields}


def bytes_of(draw: st.DrawFn, schema: Any) -> bytes:
    """Return an encoding of any data of a schema; each branch of a union is as likely."""
    out = BytesIO()
    if isinstance(schema, list):
        index = draw(st.integers(0, len(schema) - 1))
        schemaless_writer(out, {"type": "int"}, index)
        return out.getvalue() + bytes_of(draw, schema[index])
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return b"".join(bytes_of(draw, field["type"]) for field in schema["fields"])
    if kind in {"array", "map"}:
        count = draw(st.integers(0, 2))
        items = b""
        for number in range(count):
            items += b"\2" + b"ab"[number : number + 1] if kind == "map" else b""
            items += bytes_of(draw, schema["items" if kind == "array" else "values"])
        return (bytes([count * 2]) + items + b"\0") if count else b"\0"
    if kind == "enum":
        return draw(st.sampled_from([b"\0", b"\2"]))
    if kind == "fixed":
        return draw(st.binary(min_size=schema["size"], max_size=schema["size"]))
    schemaless_writer(out, {"type": kind}, draw(LEAVES[kind]))
    return out.getvalue()


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_of_every_union_data_of_every_branch_leaves_with_its_bytes(data):
    schema = data.draw(schemas())
    content = data.draw(st.composite(lambda draw: bytes_of(draw, schema))())
    read = reader(schema_of(schema), None, marked=True)
    if schema == "bytes":
        return  # official serializers write it without its length
    found = read(content)
    assert writer(schema_of(schema), b"")(found) == content


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_without_pairs_data_is_that_of_fastavro_but_for_the_names_of_records(data):
    schema = data.draw(schemas())
    if schema == "bytes":
        return
    content = data.draw(st.composite(lambda draw: bytes_of(draw, schema))())
    found = reader(schema_of(schema), None)(content)
    bare = schemaless_reader(BytesIO(content), parse_schema(schema), None)
    assert repr(unnamed(found)) == repr(bare)


def unnamed(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: unnamed(value) for name, value in data.items() if name != "-type"}
    return [unnamed(each) for each in data] if isinstance(data, list) else data


# -- each branch by itself ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("union", "content", "data"),
    [
        ([CREATED, DELETED], b"\2\2a", {"-type": "x.Deleted", "id": "a"}),
        (["null", CREATED], b"\2\2a", {"id": "a"}),
        (["double", "long"], b"\2\x82\x80\x80\x80\x80\x80\x80\x20", 9007199254740993),
        (["string", COLOUR], b"\2\0", ("x.Colour", "RED")),
        (["string", COLOUR], b"\0\6RED", "RED"),
        (["bytes", HASH], b"\2ab", ("x.Hash", b"ab")),
        (["null", NUMBERS, "bytes"], b"\4\2\1", b"\1"),
        ([NUMBERS, HASH], b"\2ab", b"ab"),
        ([DELETED, MAP], b"\2\2\2k\2v\0", {"k": "v"}),
        ([DELETED, MAP], b"\2\2\4id\2v\0", ("map", {"id": "v"})),
        ([DELETED, MAP], b"\2\2\n-type\x0eDeleted\0", ("map", {"-type": "Deleted"})),
        (["int", "long"], b"\2\2", ("long", 1)),
        (["int", "long"], b"\2\x80\x80\x80\x80\x10", 2**31),
        (["float", "double"], b"\0\0\0\0\0", ("float", 0.0)),
    ],
)
def test_a_branch_is_told_and_taken(union, content, data):
    assert reader(schema_of(in_field(union)), None, marked=True)(content)["v"] == data
    assert encoded(in_field(union), {"v": data}) == content


@pytest.mark.parametrize(
    ("union", "data", "branch"),
    [
        ([CREATED, DELETED], {"-type": "Deleted", "id": "a"}, b"\2"),
        ([CREATED, DELETED], ("x.Deleted", {"id": "a"}), b"\2"),
        ([DELETED, in_field([])], {"v": None}, None),
        (["null", "string", COLOUR], "RED", b"\2"),
        ([COLOUR, "string"], "GREEN", b"\2"),
        (["float", "double"], 1.5, b"\2"),
        (["long", "int"], 5, b"\2"),
        (["string", "long"], 5, b"\2"),
    ],
)
def test_data_is_written_to_the_branch_that_it_names_or_fits_best(union, data, branch):
    if branch is None:
        with pytest.raises(ValueError, match="no branch"):
            encoded(in_field([CREATED, DELETED]), {"v": data})
    else:
        assert encoded(in_field(union), {"v": data})[:1] == branch


@pytest.mark.parametrize(
    ("union", "data"),
    [
        ([CREATED, DELETED], {"id": "a"}),
        ([CREATED, DELETED], {"-type": "x.Other", "id": "a"}),
        ([CREATED, DELETED], ("x.Other", {"id": "a"})),
        ([DELETED, MAP], {"id": "a"}),
        ([COLOUR, {**COLOUR, "name": "x.Paint"}], "RED"),
        ([HASH, {**HASH, "name": "x.Short"}], b"ab"),
        (["int", "long"], True),
        (["int", "long"], 2**70),
        (["string", COLOUR], 5),
    ],
)
def test_data_that_fits_two_branches_or_none_and_names_none_is_refused(union, data):
    with pytest.raises(ValueError, match="branch"):
        encoded(in_field(union), {"v": data})


@pytest.mark.parametrize(
    ("top", "content", "data"),
    [
        (["x.Created", "x.Deleted"], b"\2\2a", {"-type": "x.Deleted", "id": "a"}),
        (["null", "x.Created"], b"\2\2a", {"id": "a"}),
        (["string", "x.Created"], b"\0\2a", "a"),
        ("x.Created", b"\2a", {"id": "a"}),
        ({"type": "array", "items": "x.Created"}, b"\2\2a\0", [{"id": "a"}]),
        ({"type": "map", "values": ["null", "x.Deleted"]}, b"\2\2k\2\2a\0", {"k": {"id": "a"}}),
    ],
)
def test_references_at_the_top_are_read_resolved_and_written(top, content, data):
    schema = schema_of(top, CREATED, DELETED)
    assert reader(schema, None)(content) == data
    assert writer(schema, b"")(data) == content
    inline = json.dumps(top).replace('"x.Created"', json.dumps(CREATED))
    inline = inline.replace('"x.Deleted"', json.dumps(DELETED))
    assert reader(schema, inline)(content) == unnamed(data)


def test_a_float_of_a_referenced_type_that_is_too_large_is_refused_and_not_infinite():
    price = {"type": "record", "name": "x.Price", "fields": [{"name": "v", "type": "float"}]}
    write = writer(schema_of({"type": "array", "items": "x.Price"}, price), b"")
    assert write([{"v": 1.5}]) == b"\2\0\0\xc0?\0"
    with pytest.raises(ValueError, match="does not fit float"):
        write([{"v": 1e300}])


MEMBERS = {
    "type": "record",
    "name": "x.Members",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "inner", "type": ["null", {**CREATED, "name": "x.Inner"}], "default": None},
        {"name": "many", "type": {"type": "array", "items": "x.Inner"}, "default": []},
    ],
}


@pytest.mark.parametrize("schema", [MEMBERS, in_field(["null", MEMBERS]), [MEMBERS, "int"]])
@pytest.mark.parametrize(
    "wrong",
    [
        {"nte": "a"},
        {"inner": {"id": "a", "nte": 1}},
        {"many": [{"id": "a"}, {"id": "b", "nte": 1}]},
    ],
)
def test_a_member_that_its_record_does_not_have_is_named_and_nothing_is_written(schema, wrong):
    def around(data: Any) -> Any:
        return {"v": data} if schema not in (MEMBERS, [MEMBERS, "int"]) else data

    assert encoded(schema, around({"id": 1})).endswith(b"\2\0\0\0")
    assert encoded(schema, around({"id": 1, "-type": "x.Members"})).endswith(b"\2\0\0\0")
    with pytest.raises(ValueError, match=r"x\.(Members|Inner) has no nte"):
        encoded(schema, around({"id": 1, **wrong}))


@pytest.mark.parametrize(
    ("kind", "default"),
    [("int", "1"), ("string", None), (["string", "int"], 1.5), (MAP, []), ("double", 1)],
)
def test_a_default_of_another_type_matters_only_where_it_is_used(kind, default):
    schema = in_field(kind)
    schema["fields"][0]["default"] = default
    for top in (schema, [schema, "null"], {"type": "array", "items": schema}):
        plain = json.loads(json.dumps(top).replace(f', "default": {json.dumps(default)}', ""))
        for content in (b"\0\0\0", b"\2\0\0\0\0\0\0\0\0\0\0"):
            try:
                data = reader(schema_of(plain), None)(content)
            except EOFError:
                continue
            assert reader(schema_of(top), None)(content) == data
            assert writer(schema_of(top), b"")(data) == writer(schema_of(plain), b"")(data)


def test_a_default_of_the_readers_schema_is_an_object_of_its_own_in_each_record():
    field = {"name": "n", "type": NUMBERS, "default": []}
    more = {**CREATED, "fields": [*CREATED["fields"], field]}
    orders, resolved = ({"type": "array", "items": each} for each in (CREATED, more))
    decode = reader(schema_of(orders), json.dumps(resolved))
    first, second = decode(b"\4\2a\2b\0")
    first["n"].append(1)
    assert [second, *decode(b"\2\2c\0")] == [{"id": "b", "n": []}, {"id": "c", "n": []}]


def test_a_type_within_itself_is_read_and_written():
    tree: dict[str, Any] = {"type": "record", "name": "x.Tree", "fields": []}
    tree["fields"] = [{"name": "of", "type": ["null", "x.Tree", DELETED], "default": None}]
    found = reader(schema_of(tree), None)(b"\2\2\4\2a")
    assert found == {
        "of": {
            "-type": "x.Tree",
            "of": {"-type": "x.Tree", "of": {"-type": "x.Deleted", "id": "a"}},
        }
    }
    assert encoded(tree, found) == b"\2\2\4\2a"
    assert encoded(tree, {}) == b"\0"


def test_logical_types_and_defaults_of_unions_are_written():
    union = [
        {"type": "int", "logicalType": "date"},
        {"type": "long", "logicalType": "timestamp-millis"},
    ]
    for data, branch in ((date(2026, 1, 1), b"\0"), (datetime(2026, 1, 1, tzinfo=UTC), b"\2")):
        content = encoded(in_field(union), {"v": data})
        assert content[:1] == branch
        assert reader(schema_of(in_field(union)), None)(content) == {"v": data}
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    assert encoded(in_field([HASH, decimal]), {"v": Decimal("1.50")})[:1] == b"\2"
    schema = in_field(["long", "double"])
    schema["fields"][0]["default"] = 7
    assert encoded(schema, {}) == b"\0\x0e"


# -- in a pipeline -----------------------------------------------------------------------------

BOTH = {
    "input-value": json.dumps([CREATED, DELETED]),
    "output-value": json.dumps([CREATED, DELETED]),
}
PREFIXES = b"\0\0\0\0\1", b"\0\0\0\0\2"
EVENTS = [b"\0\2a", b"\2\2a"]


class Created(msgspec.Struct):
    id: str


class Deleted(msgspec.Struct, forbid_unknown_fields=True):
    id: str


@dataclass
class Plain:
    id: str


class Model(pydantic.BaseModel):
    id: str


def typed(record: Record[Created | Deleted]) -> Output:
    assert type(record.data) in {Created, Deleted}
    return Output(record.data)


def as_it_is(record: Record) -> Any:
    return record.data


def copied(record: Record) -> Output:
    return Output({**record.data})


@pytest.mark.parametrize("function", [None, as_it_is, copied, typed])
def test_each_event_leaves_as_what_it_came(function):
    with Pipeline(function, AVRO, schemas=BOTH) as pipeline:
        result = pipeline.run(*(PREFIXES[0] + event for event in EVENTS))
    assert result.values() == [PREFIXES[1] + event for event in EVENTS]


def test_data_that_names_no_branch_is_the_dead_letter_of_its_record_alone():
    def unnamed_one(record: Record) -> Any:
        kind = record.data.pop("-type")
        return {"-type": kind, **record.data} if record.offset else record.data

    with Pipeline(unnamed_one, AVRO, schemas=BOTH) as pipeline:
        result = pipeline.run(*(PREFIXES[0] + event for event in EVENTS))
    assert result.values() == [PREFIXES[1] + EVENTS[1]]
    (letter,) = result.dead_letters
    assert "names none, of a union of x.Created, x.Deleted" in letter.error


def test_a_class_of_another_name_is_none_of_the_union():
    def other(record: Record[Plain | Model]) -> Any:
        return record.data

    with Pipeline(other, AVRO, schemas=BOTH) as pipeline:
        (letter,) = pipeline.run(PREFIXES[0] + EVENTS[0]).dead_letters
    assert "the record 'x.Created' is none of Plain, Model" in letter.error


def test_where_nothing_is_done_bytes_stay_as_any_writer_cut_them():
    schema = json.dumps({"type": "array", "items": "long"})
    blocks = [b"\4\2\4\0", b"\2\2\2\4\0", b"\3\4\2\4\0", b"\1\2\2\2\4\0"]
    schemas = {"input-value": schema, "output-value": " " + schema}
    with Pipeline(None, AVRO, schemas=schemas) as pipeline:
        result = pipeline.run(*(PREFIXES[0] + block for block in blocks), PREFIXES[0] + b"\4\2")
        values = result.values()
    assert values == [PREFIXES[1] + block for block in blocks]
    assert len(result.dead_letters) == 1
