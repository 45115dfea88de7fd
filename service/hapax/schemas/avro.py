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
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from hapax.schemas.avro_nodes import (
    PLAIN,
    RECORDS,
    REQUIRED,
    TYPE,
    ItemsNode,
    NamedNode,
    Node,
    RecordNode,
    kind_of,
)
from hapax.schemas.typed import plain_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.schemas.registry import Schema

_VALUE: Final = "v"
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
    from fastavro import parse_schema, schemaless_reader

    written, known = parsed(schema)
    if _is_bytes(written):  # as the official serializers write it: without its length
        return bytes
    node = with_branches(written, known, marked=marked) if resolved_to is None else None
    if node is not None:
        branches, shape = parse_schema(node.schema), node.read
        return lambda content: shape(
            schemaless_reader(BytesIO(content), branches, None, return_record_name=True)
        )
    read = None if resolved_to is None else _parsed(resolved_to, {})

    def decode(content: bytes) -> Any:
        return schemaless_reader(BytesIO(content), written, read)

    return decode


def writer(schema: Schema, prefix: bytes) -> Callable[[Any], bytes]:
    from fastavro import parse_schema, schemaless_writer

    written, known = parsed(schema)
    if _is_bytes(written):
        return partial(plain_first, lambda data: prefix + bytes(data))
    node = with_branches(written, known, marked=False)
    if node is not None:
        branches, shape = parse_schema(node.schema), node.written

        def encode_branches(data: Any) -> bytes:
            out = BytesIO()
            out.write(prefix)
            schemaless_writer(out, branches, shape(data))
            return out.getvalue()

        return encode_branches

    def encode(data: Any) -> bytes:
        out = BytesIO()
        out.write(prefix)
        schemaless_writer(out, written, data)
        return out.getvalue()

    return partial(plain_first, encode)


def parsed(schema: Schema) -> tuple[Any, dict[str, Any]]:
    """Return a schema as fastavro takes it, and the types that it refers to, by full name."""
    named: dict[str, Any] = {}
    for reference in schema.references:
        _parsed(reference.text, named)
    known = dict(named)
    return _parsed(schema.text, named), known


def name_of(text: str) -> str | None:
    found = _parsed(text, {})
    return found.get("name") if isinstance(found, dict) else None


def _parsed(text: str, named: dict[str, Any]) -> Any:
    from fastavro import parse_schema

    return parse_schema(json.loads(text), named_schemas=named)


def _is_bytes(schema: Any) -> bool:
    return schema == "bytes" or (isinstance(schema, dict) and schema.get("type") == "bytes")


# -- unions ----------------------------------------------------------------------------------


class _Union(Node):
    """A union; ``marked``: pairs are returned where plain data would take another branch."""

    def __init__(self, branches: list[Node], number: int, *, marked: bool) -> None:
        super().__init__([], "union")
        self._branches = branches
        self._marked = marked
        self._names = [f"hapax_u{number}_{at}" for at in range(len(branches))]
        self.schema = [
            branch.schema
            if branch.schema == "null"
            else {
                "type": "record",
                "name": name,
                "namespace": "",
                "fields": [{"name": _VALUE, "type": branch.schema}],
            }
            for name, branch in zip(self._names, branches, strict=True)
        ]

    @property
    def nullable(self) -> bool:
        return any(branch.schema == "null" for branch in self._branches)

    @property
    def ambiguous(self) -> bool:
        groups = [_GROUPS.get(kind_of(branch.target.schema)) for branch in self._branches]
        return any(groups.count(group) > 1 for group in groups if group)

    def written(self, data: Any) -> Any:
        return self._of(*self._choose(data))

    def default(self, data: Any) -> Any:
        if data is None and self.nullable:
            return None
        return self._of(0, data)  # a default is of the first branch (Avro 1.12, complex types)

    def _of(self, index: int, data: Any) -> Any:
        branch = self._branches[index]
        if branch.schema == "null":
            return None
        return self._names[index], {_VALUE: branch.written(data)}

    def read(self, data: Any) -> Any:
        if data is None:
            return None
        name, inner = data
        index = self._names.index(name)
        branch = self._branches[index]
        value = branch.read(inner[_VALUE])
        if isinstance(branch.target, RecordNode):
            several = sum(kind_of(one.target.schema) in _DICTS for one in self._branches) > 1
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
                least = min(self._branches[at].target.rank for at in fit)
                best = [at for at in fit if self._branches[at].target.rank == least]
                return best[0] if len(best) == 1 else None
        return None

    def _of_name(self, pair: tuple[Any, ...]) -> int | None:
        names = [branch.name for branch in self._branches]
        name = pair[0] if pair[1:] and not pair[2:] else None
        return names.index(name) if name in names else None

    def _of_record(self, name: str) -> int | None:
        """Return the record with this full name, or the only one with this last part of it."""
        records = [
            (at, one.name)
            for at, one in enumerate(self._branches)
            if isinstance(one.target, RecordNode)
        ]
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

    def node(self, schema: Any) -> Node:
        if isinstance(schema, list):
            branches = [self.node(branch) for branch in schema]
            self.unions.append(_Union(branches, len(self.unions), marked=self._marked))
            return self.unions[-1]
        kind = schema["type"] if isinstance(schema, dict) else schema
        if not isinstance(kind, str):
            return self.node(kind)
        if kind not in self._types and kind in self._known:
            return self.node(self._known[kind])
        return self._made(kind, schema)

    def _made(self, kind: str, schema: Any) -> Node:
        if kind in {"array", "map"}:
            key = "items" if kind == "array" else "values"
            return ItemsNode(schema, self.node(schema[key]), key)
        if kind in RECORDS:
            return self._record(schema)
        if kind in {"enum", "fixed"}:
            return self._types.setdefault(schema["name"], Node(schema, schema["name"]))
        return Node(schema, kind) if kind in PLAIN else NamedNode(kind, self._types)

    def _record(self, schema: Any) -> Node:
        kept = {key: value for key, value in schema.items() if not key.startswith("__")}
        node = self._types[schema["name"]] = RecordNode(kept)
        fields = []
        for field in schema["fields"]:
            inner = self.node(field["type"])
            none = None if isinstance(inner, _Union) and inner.nullable else REQUIRED
            node.members[field["name"]] = inner, field.get("default", none)
            given = {key: value for key, value in field.items() if key != "default"}
            fields.append({**given, "type": inner.schema})
        node.schema = {**kept, "fields": fields}
        return node


def with_branches(schema: Any, known: dict[str, Any], *, marked: bool) -> Node | None:
    """Return the node of a parsed schema; None: none of its values fits two branches of a union.

    ``known``: the types that it refers to, by full name. ``marked``: what is read has pairs where
    plain data would be written to another branch.
    """
    maker = _Maker(known, marked=marked)
    root = maker.node(schema)
    return root if any(union.ambiguous for union in maker.unions) else None
