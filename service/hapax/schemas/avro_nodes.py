"""Places of an Avro schema that are no union: what fits, and how data is read and written."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

TYPE: Final = "-type"
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
PLAIN: Final[dict[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": lambda value: _is_int(value) and -(2**31) <= value < 2**31,
    "long": lambda value: _is_int(value) and -(2**63) <= value < 2**63,
    "float": lambda value: _is_int(value) or isinstance(value, float),
    "double": lambda value: _is_int(value) or isinstance(value, float),
    "string": lambda value: isinstance(value, str),
    "bytes": lambda value: isinstance(value, bytes | bytearray),
}


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Node:
    """One place of a schema. This one: a value that holds no union.

    schema   what fastavro is given in its place
    name     of the branch that it is in a union; rank: see RANKS
    written  returns data as fastavro writes it; read: as functions get it. Raise ValueError
    fits     whether data can be written here; ``loose``: members that a record lacks are ignored
    """

    def __init__(self, schema: Any, name: str) -> None:
        self.schema = schema
        self.name = name
        logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
        self.rank = RANKS.get(logical, RANKS.get(kind_of(schema), 0) if not logical else 0)
        self._types = _LOGICAL.get(logical, ())

    @property
    def target(self) -> Node:
        return self

    def written(self, data: Any) -> Any:
        return data.value if isinstance(data, Enum) else data

    def default(self, data: Any) -> Any:
        return self.written(data)

    def read(self, data: Any) -> Any:
        return data

    def fits(self, data: Any, *, loose: bool = False) -> bool:
        del loose
        if isinstance(data, self._types):
            return True
        kind = kind_of(self.schema)
        if kind == "enum":
            return isinstance(data, str) and data in self.schema["symbols"]
        if kind == "fixed":
            return isinstance(data, bytes | bytearray) and len(data) == self.schema["size"]
        return PLAIN[kind](data)


class ItemsNode(Node):
    """An array, or a map of values."""

    def __init__(self, schema: Any, inner: Node, key: str) -> None:
        super().__init__({**schema, key: inner.schema}, schema["type"])
        self._inner = inner
        self._map = key == "values"

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
        return found

    def read(self, data: Any) -> Any:
        return {name: node.read(data[name]) for name, (node, _) in self.members.items()}

    def fits(self, data: Any, *, loose: bool = False) -> bool:
        data = members_of(data)
        if not isinstance(data, dict) or not (loose or data.keys() - {TYPE} <= self.members.keys()):
            return False
        return all(
            node.fits(data[name], loose=loose) if name in data else default is not REQUIRED
            for name, (node, default) in self.members.items()
        )


class NamedNode(Node):
    """A type by its name, defined elsewhere: also within itself."""

    def __init__(self, name: str, types: dict[str, Node]) -> None:
        super().__init__(name, name)
        self._by_name = types

    @property
    def target(self) -> Node:
        return self._by_name[self.name]

    def written(self, data: Any) -> Any:
        return self.target.written(data)

    def read(self, data: Any) -> Any:
        return self.target.read(data)

    def fits(self, data: Any, *, loose: bool = False) -> bool:
        return self.target.fits(data, loose=loose)


def kind_of(schema: Any) -> str:
    kind = schema["type"] if isinstance(schema, dict) else schema
    return "union" if isinstance(kind, list) else str(kind)


def members_of(data: Any) -> Any:
    """Return an object of a type of data as a dict of its members; anything else as it is."""
    if isinstance(data, msgspec.Struct):
        return {each.encode_name: getattr(data, each.name) for each in msgspec.structs.fields(data)}
    members = getattr(type(data), "__dataclass_fields__", getattr(type(data), "model_fields", None))
    return data if members is None else {name: getattr(data, name) for name in members}
