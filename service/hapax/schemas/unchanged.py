"""Values of Avro that keep their bytes, where the schema of inputs and outputs is one.

Writers may cut arrays and maps into blocks of any length; bytes that were decoded and encoded again
would have one block.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hapax.core.headers import VALUE_SCHEMA
from hapax.core.records import Output
from hapax.schemas.codec import head_of, key_of
from hapax.schemas.wire import split

if TYPE_CHECKING:
    from hapax.core.formats import FormatOptions
    from hapax.core.records import Record
    from hapax.schemas.codec import Encoder
    from hapax.schemas.lookup import Lookup
    from hapax.schemas.registry import Schema


class Unchanged:
    """What nothing is done to: its records were decoded before, so their bytes are sound."""

    def __init__(self, formats: FormatOptions, lookup: Lookup, encoder: Encoder) -> None:
        self._formats = formats
        self._lookup = lookup
        self._encoder = encoder
        self._heads: dict[str | int, tuple[bytes, bytes] | None] = {}

    def output(self, record: Record) -> Output | None:
        """Return the output; None: its schema is another, or it has no value.

        Raises SchemasUnavailableError and Poison.
        """
        if record.value is None or self._formats.reader is not None:
            return None
        schema, _rest, content = split(record.value, record.headers)
        if schema not in self._heads:
            self._heads[schema] = self._head(schema)
        head = self._heads[schema]
        if head is None:
            return None
        prefix, mark = head
        if prefix:
            return Output(prefix + content)
        if content is record.value:  # the header of the record says so already
            return Output(content)
        return Output(content, headers=((VALUE_SCHEMA, mark),))

    def _head(self, schema: str | int) -> tuple[bytes, bytes] | None:
        written = self._lookup.get(self._encoder.key(self._formats.topic))
        if not _same(self._lookup.get(key_of(schema)), written):
            return None
        return head_of(written, in_header=self._formats.registry.placement == "header")


def _same(one: Schema, other: Schema) -> bool:
    if (one.kind, one.references) != (other.kind, other.references):
        return False
    return bool(json.loads(one.text) == json.loads(other.text))
