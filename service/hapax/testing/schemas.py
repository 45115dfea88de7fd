"""Schemas of a test, in the place of a registry."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hapax.schemas.codec import KINDS, Decoder, Encoder
from hapax.schemas.lookup import lookup_of
from hapax.schemas.registry import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.formats import Format, FormatOptions
    from hapax.core.records import Record

_NUMBERS = count()
Given = dict[str, Any] | str | Path
"""A schema: as data, as text, or the file that has it."""


class TestSchemas:
    """What a pipeline in memory looks up, by subject: ``orders-value`` is of the topic orders."""

    __test__ = False  # no class of tests, whatever pytest makes of its name

    def __init__(self, formats: FormatOptions, schemas: Mapping[str, Given]) -> None:
        self._formats = formats
        self._lookup = lookup_of(formats)
        for number, (subject, given) in enumerate(schemas.items(), 1):
            text = _text(given)
            kind = KINDS.get(self._format(subject), "AVRO")
            schema = Schema(text=text, kind=kind, id=number, guid=f"{number:032x}")
            for key in (f"subject:{subject}", f"id:{number}", f"guid:{number:032x}"):
                self._lookup.add(key, schema)

    def value(self, data: Any, topic: str) -> bytes | None:
        """Return the value of an input record with this data."""
        if data is None or isinstance(data, bytes):
            return data
        formats = self._formats
        written = replace(formats, output=formats.input, schema=None, topic=topic)
        return Encoder(written, self._lookup).encode(data, topic)[0]

    def data(self, record: Record[Any]) -> Any:
        """Return the data of an output."""
        read = replace(self._formats, input=self._formats.output, reader=None)
        return Decoder(read, self._lookup, Any).decode(record)

    def _format(self, subject: str) -> Format:
        output = subject == f"{self._formats.topic}-value"
        return self._formats.output if output else self._formats.input


def schemas_of(
    formats: FormatOptions, schemas: Mapping[str, Given]
) -> tuple[FormatOptions, TestSchemas]:
    """Return formats whose registry is memory of this pipeline alone, and what it holds."""
    urls = (f"memory:{next(_NUMBERS)}",)
    ours = replace(formats, registry=replace(formats.registry, url=urls))
    return ours, TestSchemas(ours, schemas)


def _text(given: Given) -> str:
    if isinstance(given, Path):
        return given.read_text(encoding="utf-8")
    return given if isinstance(given, str) else json.dumps(given)
