"""Avro, by fastavro. In unions data names its branch, on the way in and on the way out.

fastavro guesses the branch of a value that fits several, and does not return which branch was
read. Here every branch of a union is wrapped in a record with one field, which Avro encodes as the
field alone: the bytes stay, and each branch has a name that fastavro returns and takes.

``-type``  a member of the dict of a record, in unions of several records, or of records and a map
a pair     ``(name, value)``: of other branches, where the plain value would take another one
a class    on the way out: an object whose class has the name of a record
none       the one branch that the value fits; of several the most exact type (``RANKS``)
"""

from __future__ import annotations

import json
import math
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from hapax.schemas.typed import TYPE, plain, plain_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.schemas.registry import Schema

_VALUE: Final = "v"
RECORDS: Final = ("record", "error")
REQUIRED: Final[Any] = object()
RANKS: Final = {"long": 1, "double": 2, "float": 3, "enum": 1, "fixed": 1, "date": 1}
"""Of branches that a plain value fits, those with the least rank count; 0 where none is given."""
_LOGICAL: Final[dict[str, tuple[type, ...]]] = {
    "date": (date,),
    "decimal": (Decimal,),
    "uuid": (UUID,),
    **dict.fromkeys(("time-millis", "time-micros"), (time,)),
    **dict.fromkeys(
        (f"{kind}timestamp-{unit}" for kind in ("", "local-") for unit in ("millis", "micros")),
        (datetime,),
    ),
}
_FLOAT_MAX: Final = (2 - 2**-23) * 2.0**127
PLAIN: Final[dict[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": lambda value: _is_int(value) and -(2**31) <= value < 2**31,
    "long": lambda value: _is_int(value) and -(2**63) <= value < 2**63,
    "float": lambda value: PLAIN["double"](value) and not _FLOAT_MAX < abs(value) < math.inf,
    "double": lambda value: _is_int(value) or isinstance(value, float),
    "string": lambda value: isinstance(value, str),
    "bytes": lambda value: isinstance(value, bytes | bytearray),
}
_DICTS: Final = (*RECORDS, "map")
_GROUPS: Final = {
    **dict.fromkeys(_DICTS, "dict"),
    **dict.fromkeys(("string", "enum"), "text"),
    **dict.fromkeys(("bytes", "fixed", "array"), "bytes"),  # fastavro takes bytes for numbers
    **dict.fromkeys(("int", "long", "float", "double"), "number"),
}
"""Branches of one group may take the same value."""


def reader(
    schema: Schema, resolved_to: str | None, *, marked: bool = False
) -> Callable[[bytes], Any]:
    """Return what decodes content of a schema; ``resolved_to``: text of a reader's schema.

    ``marked``: every value keeps its branch of a union, for a writer (see above).
    """
    from fastavro import schemaless_reader

    text, (written, known) = json.loads(schema.text), parsed(schema)
    if _is_bytes(written):  # as the official serializers write it: without its length
        return bytes
    if resolved_to is not None:
        given, read = _held(text, known), _held(json.loads(resolved_to), {}, defaults=True)
        # fastavro puts the default of a field, one object, into every record: ``plain`` copies it.
        return lambda content: plain(_one(schemaless_reader(BytesIO(content), given, read)))
    node, ambiguous = with_branches(written, known, marked=marked)
    if ambiguous:
        branches, shape = _held(node.schema, {}), node.read
        return lambda content: shape(
            _one(schemaless_reader(BytesIO(content), branches, None, return_record_name=True))
        )
    if isinstance(written, dict) and "__fastavro_parsed" in written:
        return lambda content: schemaless_reader(BytesIO(content), written, None)
    given = _held(text, known)
    return lambda content: _one(schemaless_reader(BytesIO(content), given, None))


def writer(schema: Schema, prefix: bytes) -> Callable[[Any], bytes]:
    """Return what encodes data after a prefix. It refuses what fastavro 1.13 changes."""
    from fastavro import schemaless_writer
    from fastavro.validation import validate

    written, known = parsed(schema)
    if _is_bytes(written):
        return partial(plain_first, lambda data: prefix + bytes(data))
    node, ambiguous = with_branches(written, known, marked=False)
    branches, shape = _held(node.schema, {}), node.written

    def written_by(schema: Any, data: Any, **options: bool) -> bytes:
        out = BytesIO()
        out.write(prefix)
        schemaless_writer(out, schema, {_VALUE: data}, **options)
        return out.getvalue()

    def exactly(data: Any) -> bytes:
        return written_by(branches, shape(data))

    texts = (schema.text, *(one.text for one in schema.references))
    if ambiguous or any('"float"' in text for text in texts):  # ``validate`` knows no range of it
        return exactly
    given = _held(json.loads(schema.text), known, optional=True)

    def encode(data: Any) -> bytes:
        try:
            validate({_VALUE: data}, given)
            return written_by(given, data, strict_allow_default=True)
        except Exception:  # noqa: BLE001 - this one names what is wrong, and takes ``-type``
            return exactly(data)

    return partial(plain_first, encode)


def parsed(schema: Schema) -> tuple[Any, dict[str, Any]]:
    """Return a schema as fastavro takes it, and the types that it refers to, by full name."""
    named: dict[str, Any] = {}
    for reference in schema.references:
        _parsed(json.loads(reference.text), named)
    known = dict(named)
    return _parsed(json.loads(schema.text), named), known


def name_of(text: str) -> str | None:
    found = _parsed(json.loads(text), {})
    return found.get("name") if isinstance(found, dict) else None


def _parsed(schema: Any, named: dict[str, Any], *, defaults: bool = False) -> Any:
    """Parse a schema. Defaults of another type, which old subjects hold, matter to readers only."""
    from fastavro import parse_schema

    return parse_schema(schema, named_schemas=named, _ignore_default_error=not defaults)


def _held(
    schema: Any, known: dict[str, Any], *, defaults: bool = False, optional: bool = False
) -> Any:
    """Return a record with one field of a schema, which is encoded as the field alone.

    fastavro parses unions and names again for each value, and loses the types that they refer to.
    ``optional``: of a member that may be null none is null, as without ``strict_allow_default``.
    """
    named = dict(known)
    made = _parsed(_box("hapax_held", schema), named, defaults=defaults)
    fields = [field for one in named.values() for field in one.get("fields", ())]
    for field in fields if optional else ():
        if "null" in field["type"]:
            field.setdefault("default", None)
    return made


def _box(name: str, schema: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": _VALUE, "type": schema}]}


def _one(held: Any) -> Any:
    return held[_VALUE]


def _is_bytes(schema: Any) -> bool:
    return schema == "bytes" or (isinstance(schema, dict) and schema.get("type") == "bytes")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Node:
    """One place of a schema. This one: a value that holds no union.

    name     of the branch that it is in a union; rank: see RANKS
    written  returns data as fastavro writes it; read: as functions get it. Raise ValueError
    fits     whether data can be written here; ``loose``: members that a record lacks are ignored
    """

    def __init__(self, schema: Any, name: str) -> None:
        self.schema = schema
        self.name = name
        kind = schema["type"] if isinstance(schema, dict) else schema
        self.kind = "union" if isinstance(kind, list) else str(kind)
        logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
        self.rank = RANKS.get(logical, RANKS.get(self.kind, 0) if not logical else 0)
        self._types = _LOGICAL.get(logical, ())

    def written(self, data: Any) -> Any:
        value = data.value if isinstance(data, Enum) else data
        # What a logical type stands for may be given as well.
        if self.fits(value) or (self._types and PLAIN[self.kind](value)):
            return value
        raise ValueError(f"{value!r:.99} does not fit {self.name}")

    def default(self, data: Any) -> Any:
        return self.written(data)

    def read(self, data: Any) -> Any:
        return data

    def fits(self, data: Any, *, loose: bool = False) -> bool:
        del loose
        if isinstance(data, self._types):
            return True
        if self.kind == "enum":
            return isinstance(data, str) and data in self.schema["symbols"]
        if self.kind == "fixed":
            return isinstance(data, bytes | bytearray) and len(data) == self.schema["size"]
        return PLAIN[self.kind](data)


class ItemsNode(Node):
    """An array, or a map of values."""

    def __init__(self, schema: Any, inner: Node) -> None:
        super().__init__(schema, schema["type"])
        self._inner = inner
        self._map = self.kind == "map"

    def written(self, data: Any) -> Any:
        return self._each(data, self._inner.written)

    def read(self, data: Any) -> Any:
        return self._each(data, self._inner.read)

    def fits(self, data: Any, *, loose: bool = False) -> bool:
        if self._map != isinstance(data, dict) or not isinstance(data, dict | list | tuple):
            return False
        values = data.values() if isinstance(data, dict) else data
        return all(self._inner.fits(each, loose=loose) for each in values)

    def _each(self, data: Any, step: Callable[[Any], Any]) -> Any:
        if self._map:
            return {key: step(value) for key, value in data.items()}
        return [step(value) for value in data]


class RecordNode(Node):
    """A record; ``members`` by name: the node, and the default or REQUIRED."""

    def __init__(self, schema: Any) -> None:
        super().__init__(schema, schema["name"])
        self.members: dict[str, tuple[Node, Any]] = {}

    def written(self, data: Any) -> Any:
        data = members_of(data)
        if not isinstance(data, dict):
            raise TypeError(f"{type(data).__name__} is no data of a record {self.name}")
        found = {}
        for name, (node, default) in self.members.items():
            if name in data:
                found[name] = node.written(data[name])
            elif default is REQUIRED:
                raise ValueError(f"no value and no default for {self.name}.{name}")
            else:
                found[name] = node.default(default)
        if not data.keys() <= self.members.keys() and (more := self._more(data)):
            raise ValueError(f"{self.name} has no {', '.join(sorted(map(str, more)))}")
        return found

    def _more(self, data: dict[str, Any]) -> set[str]:
        return data.keys() - self.members.keys() - {TYPE}

    def read(self, data: Any) -> Any:
        return {name: node.read(data[name]) for name, (node, _) in self.members.items()}

    def fits(self, data: Any, *, loose: bool = False) -> bool:
        data = members_of(data)
        if not isinstance(data, dict) or not (loose or not self._more(data)):
            return False
        return all(
            node.fits(data[name], loose=loose) if name in data else default is not REQUIRED
            for name, (node, default) in self.members.items()
        )


def members_of(data: Any) -> Any:
    """Return an object of a type of data as a dict of its members; anything else as it is."""
    if isinstance(data, msgspec.Struct):
        return {each.encode_name: getattr(data, each.name) for each in msgspec.structs.fields(data)}
    members = getattr(type(data), "__dataclass_fields__", getattr(type(data), "model_fields", None))
    return data if members is None else {name: getattr(data, name) for name in members}


class _Union(Node):
    """A union; ``marked``: pairs are returned where plain data would take another branch."""

    def __init__(self, branches: list[tuple[Any, Node]], number: int, *, marked: bool) -> None:
        self._branches = [branch for _, branch in branches]
        self._marked = marked
        self._names = [f"hapax_u{number}_{at}" for at in range(len(branches))]
        schemas = [
            schema if schema == "null" else {**_box(name, schema), "namespace": ""}
            for name, (schema, _) in zip(self._names, branches, strict=True)
        ]
        super().__init__(schemas, "union")

    @property
    def nullable(self) -> bool:
        return any(branch.kind == "null" for branch in self._branches)

    @property
    def ambiguous(self) -> bool:
        groups = [_GROUPS.get(branch.kind) for branch in self._branches]
        return any(groups.count(group) > 1 for group in groups if group)

    def written(self, data: Any) -> Any:
        return self._of(*self._choose(data))

    def default(self, data: Any) -> Any:
        if data is None and self.nullable:
            return None
        return self._of(0, data)  # a default is of the first branch (Avro 1.12, complex types)

    def _of(self, index: int, data: Any) -> Any:
        branch = self._branches[index]
        if branch.kind == "null":
            return None
        return self._names[index], {_VALUE: branch.written(data)}

    def read(self, data: Any) -> Any:
        if data is None:
            return None
        name, inner = data
        index = self._names.index(name)
        branch = self._branches[index]
        value = branch.read(inner[_VALUE])
        if isinstance(branch, RecordNode):
            several = sum(one.kind in _DICTS for one in self._branches) > 1
            return {TYPE: branch.name, **value} if several else value
        if not self._marked or isinstance(value, list):
            return value
        return value if self._index(value) == index else (branch.name, value)

    def fits(self, data: Any, *, loose: bool = False) -> bool:
        if isinstance(data, tuple):
            return self._of_name(data) is not None
        return any(branch.fits(data, loose=loose) for branch in self._branches)

    def _choose(self, data: Any) -> tuple[int, Any]:
        if isinstance(data, tuple):
            index = self._of_name(data)
            if index is None:
                raise ValueError(f"{data[:1]} names no branch of a union of {self._told()}")
            return index, data[1]
        index = self._index(data)
        if index is None:
            raise ValueError(
                f"data fits no branch, or several and names none, of a union of {self._told()}:"
                f" name one by a member {TYPE!r}, a pair (name, value), or a class of its name"
            )
        return index, data

    def _index(self, data: Any) -> int | None:
        """Return the branch of data that is no pair; None: it names and fits none, or several."""
        named = data.get(TYPE) if isinstance(data, dict) else type(data).__name__
        index = self._of_record(named) if isinstance(named, str) else None
        if index is not None:
            return index
        for loose in (False, True):
            fit = [at for at, one in enumerate(self._branches) if one.fits(data, loose=loose)]
            if fit:
                least = min(self._branches[at].rank for at in fit)
                best = [at for at in fit if self._branches[at].rank == least]
                return best[0] if len(best) == 1 else None
        return None

    def _of_name(self, pair: tuple[Any, ...]) -> int | None:
        names = [branch.name for branch in self._branches]
        name = pair[0] if pair[1:] and not pair[2:] else None
        return names.index(name) if name in names else None

    def _of_record(self, name: str) -> int | None:
        """Return the record with this full name, or the only one with this last part of it."""
        branches = enumerate(self._branches)
        records = [(at, one.name) for at, one in branches if isinstance(one, RecordNode)]
        exact = [at for at, full in records if full == name]
        short = [at for at, full in records if full.rpartition(".")[2] == name]
        found = exact or short
        return found[0] if len(found) == 1 else None

    def _told(self) -> str:
        return ", ".join(branch.name for branch in self._branches)


class _Maker:
    """Makes the nodes of one schema; ``known``: types that it refers to."""

    def __init__(self, known: dict[str, Any], *, marked: bool) -> None:
        self._known = known
        self._marked = marked
        self._types: dict[str, Node] = {}
        self.unions: list[_Union] = []

    def node(self, schema: Any) -> tuple[Any, Node]:
        """Return what fastavro is given in this place, and the node."""
        if isinstance(schema, list):
            branches = [self.node(branch) for branch in schema]
            self.unions.append(_Union(branches, len(self.unions), marked=self._marked))
            return self.unions[-1].schema, self.unions[-1]
        kind = schema["type"] if isinstance(schema, dict) else schema
        if not isinstance(kind, str):
            return self.node(kind)
        if kind in self._types:
            return kind, self._types[kind]
        if kind in self._known:
            return self.node(self._known[kind])
        made = self._made(kind, schema)
        return made.schema, made

    def _made(self, kind: str, schema: Any) -> Node:
        if kind in {"array", "map"}:
            key = "items" if kind == "array" else "values"
            given, inner = self.node(schema[key])
            return ItemsNode({**schema, key: given}, inner)
        if kind in RECORDS:
            return self._record(schema)
        if kind in PLAIN:
            return Node(schema, kind)
        return self._types.setdefault(schema["name"], Node(schema, schema["name"]))

    def _record(self, schema: Any) -> Node:
        kept = {key: value for key, value in schema.items() if not key.startswith("__")}
        node = self._types[schema["name"]] = RecordNode(kept)
        fields = []
        for field in schema["fields"]:
            given, inner = self.node(field["type"])
            none = None if isinstance(inner, _Union) and inner.nullable else REQUIRED
            node.members[field["name"]] = inner, field.get("default", none)
            rest = {key: value for key, value in field.items() if key != "default"}
            fields.append({**rest, "type": given})
        node.schema = {**kept, "fields": fields}
        return node


def with_branches(schema: Any, known: dict[str, Any], *, marked: bool) -> tuple[Node, bool]:
    """Return the node of a parsed schema, and whether any value fits two branches of a union.

    ``known``: the types that it refers to, by full name. ``marked``: what is read has pairs where
    plain data would be written to another branch.
    """
    maker = _Maker(known, marked=marked)
    _, root = maker.node(schema)
    return root, any(union.ambiguous for union in maker.unions)
