"""Bytes to lines, and lines to rows: as they are, as JSON that was checked, or CSV as objects."""

from __future__ import annotations

import csv
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from hapax.core.errors import HapaxError
from hapax.core.json_pointer import unmarked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

RowForm = Literal["lines", "csv", "json-lines"]
FIELD_BYTES_MAX = 16 << 20
"""A quote that is never closed would read all of the file as one field."""
LINE_BYTES_MAX = 64 << 20


def whole_lines(read: Callable[[], bytes | None]) -> Iterator[bytes]:
    """Yield lines with their ends; the last one may lack it.

    ``read`` returns further bytes, b"" at the end, after which what is left is a line, and None
    when reading stops before: then it is none, because the rest of it may still come. Raises
    HapaxError for a line that does not end within LINE_BYTES_MAX.
    """
    rest: list[bytes] = []
    held = 0
    while chunk := read():
        *whole, last = chunk.split(b"\n")
        for each in whole:
            yield b"".join([*rest, each, b"\n"])
            rest, held = [], 0
        rest.append(last)
        held += len(last)
        if held > LINE_BYTES_MAX:
            raise HapaxError(
                f"a line does not end within {LINE_BYTES_MAX >> 20} MiB: is this a text file?"
            )
    if chunk is not None and (line := b"".join(rest)):
        yield line


class SourceRow(msgspec.Struct, frozen=True, gc=False):
    """One row. ``line``: its first line, from 1; ``end``: the byte after it; both in its file.

    ``problem``: why no record can be made of it; empty: it is fine.
    """

    value: bytes
    line: int
    end: int
    problem: str = ""


@dataclass(eq=False)
class SourceRows:
    """Iterates over the rows of one file; empty lines are none.

    ``line`` and ``offset``: how many lines and bytes were read before ``lines`` begins.
    ``columns``: of a CSV file whose header was read before; a file that begins has its own.
    """

    form: RowForm
    lines: Iterable[bytes]
    _: KW_ONLY
    line: int = 0
    offset: int = 0
    columns: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[SourceRow]:
        if self.form == "csv":
            yield from self._csv()
            return
        for text in self._counted():
            if value := text.rstrip(b"\r\n"):
                problem = _json_problem(value) if self.form == "json-lines" else ""
                yield SourceRow(value, self.line, self.offset, problem)

    def _counted(self) -> Iterator[bytes]:
        for text in self.lines:
            self.line += 1
            self.offset += len(text)
            # A byte-order mark is the file's; lines that are taken as they are keep it.
            yield unmarked(text) if self.line == 1 and self.form != "lines" else text

    def _csv(self) -> Iterator[SourceRow]:
        csv.field_size_limit(FIELD_BYTES_MAX)
        # What is no UTF-8 is found in its row, which then names the line.
        texts = (text.decode("utf-8", "surrogateescape") for text in self._counted())
        found = csv.reader(texts, strict=True)
        while True:
            before, value = self.line, b""
            problem, fields = "", list[str]()
            try:
                fields = next(found)
            except StopIteration:
                return
            except csv.Error as error:
                problem = f"is not CSV: {error}"
            else:
                if fields and self.columns:
                    value, problem = self._object(fields)
                elif fields:
                    self.columns = tuple(fields)
                    problem = _header_problem(self.columns)
                if not value and not problem:
                    continue
            yield SourceRow(value, before + 1, self.offset, problem)

    def _object(self, fields: list[str]) -> tuple[bytes, str]:
        if len(fields) != len(self.columns):
            return b"", f"has {len(fields)} fields, and the header has {len(self.columns)}"
        try:
            return msgspec.json.encode(dict(zip(self.columns, fields, strict=True))), ""
        except UnicodeEncodeError:
            return b"", "is not UTF-8"


def _header_problem(columns: tuple[str, ...]) -> str:
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        return f"is a header with {', '.join(twice)} twice"
    try:
        "".join(columns).encode()
    except UnicodeEncodeError:
        return "is a header that is not UTF-8"
    return ""


def _json_problem(value: bytes) -> str:
    try:
        msgspec.json.decode(value, type=msgspec.Raw)
    except msgspec.DecodeError:
        return "is not JSON"
    return ""
