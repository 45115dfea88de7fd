"""Records as columns: thousands at once, because ten million are read back.

Where all records of a chunk look as they should, texts are taken apart by numpy in one go;
otherwise record by record with the parsers of the audit, and what is not readable is ODD.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from confluent_kafka import Message
from numpy.typing import NDArray

from tests.fault import rules
from tests.fault.checking import reading_texts as texts
from tests.fault.checking.reading_texts import CHECK_DIGITS, ODD

DEAD = 0
"""Slot of a dead letter; outputs count from 1."""

INPUT = np.dtype(
    [
        ("offset", "i8"),
        ("number", "i8"),
        ("t_ms", "i8"),
        ("kseq", "i8"),
        ("key", "i4"),
        ("check", "u4"),
        ("lane", "i2"),
        ("copy", "i1"),
    ]
)
"""One input record: ``lane`` its partition, ``check`` CRC of its value, ``copy`` 1 in a twin."""

EFFECT = np.dtype(
    [
        ("at", "i8"),
        ("source", "i8"),
        ("number", "i8"),
        ("event", "i8"),
        ("t_ms", "i8"),
        ("place", "i4"),
        ("key", "i4"),
        ("check", "u4"),
        ("hash", "u4"),
        ("lane", "i2"),
        ("who", "i2"),
        ("slot", "i1"),
        ("part", "i1"),
        ("parts", "i1"),
        ("dup", "i1"),
        ("headed", "?"),
    ]
)
"""One output or dead letter.

lane, at       its partition and offset
place, source  partition and offset of the input record that it names
number, part, t_ms, check  what its value says; ``part`` from 0, ODD in a dead letter
event, dup     what the headers ``hapax-id`` and ``dup`` say; ``dup`` ODD where it is missing
slot, parts    which output of how many by ``hapax-part``; DEAD of 1
hash           CRC of its value
headed         whether its headers are those that the service promises, no more and no fewer
"""
OFFSET = np.dtype([("offset", "i8"), ("lane", "i2")])
"""Any record, aborted ones among them."""

_OUTPUT = {"hapax-id", "hapax-source", "message-id", "dup", "who"}
_PLAIN = _OUTPUT - {"who"}
_ATTEMPTS = b"3"
"""How often the service tries a record unless it is set otherwise."""
_DUPS: dict[Any, int] = {b"0": 0, b"1": 1, None: ODD}
_NO_DUP = -2

Table = np.ndarray[Any, np.dtype[np.void]]


class Names(NamedTuple):
    """What texts begin with. ``whos``: processes that wrote, by their number in the columns."""

    source: str
    run: str
    whos: dict[bytes, int]


def inputs(messages: Sequence[Message]) -> Table:
    values = [message.value() or b"" for message in messages]
    table = np.zeros(len(values), INPUT)
    _place_in(table, messages, "offset")
    heads = [value.rstrip()[: -CHECK_DIGITS - 1] for value in values]
    fields = texts.numbers(heads, b" ", 4)
    if fields is None:
        rows = [rules.decode(value) or (ODD,) * 4 for value in values]
        fields = np.array(rows, np.int64).reshape(-1, 4)
    for at, name in enumerate(("number", "key", "kseq", "t_ms")):
        table[name] = fields[:, at]
    table["check"] = [crc32(value) for value in values]
    table["copy"] = [dict(message.headers() or ()).get("dup") == b"1" for message in messages]
    return table


def offsets(messages: Sequence[Message]) -> Table:
    table = np.zeros(len(messages), OFFSET)
    _place_in(table, messages, "offset")
    return table


def _place_in(table: Table, messages: Sequence[Message], name: str) -> None:
    table[name] = [message.offset() for message in messages]
    table["lane"] = [message.partition() for message in messages]


def outputs(messages: Sequence[Message], names: Names) -> Table:
    values = [message.value() or b"" for message in messages]
    table, headers = _effects(messages, values, names)
    fields = texts.numbers([value[: -CHECK_DIGITS - 1] for value in values], b" ", 3)
    if fields is None:
        fields = np.array([texts.fields_of(value) for value in values], np.int64).reshape(-1, 3)
    for at, name in enumerate(("number", "part", "t_ms")):
        table[name] = fields[:, at]
    table["check"] = texts.checks([value[-CHECK_DIGITS:] for value in values])
    parts = [header.get("hapax-part", b"1/1") or b"" for header in headers]
    slots = texts.numbers(parts, b"/", 2)
    if slots is None:
        slots = np.array([texts.pair_of(part) for part in parts], np.int64).reshape(-1, 2)
    table["slot"], table["parts"] = slots[:, 0], slots[:, 1]
    plain = rules.is_plain(table["number"])  # without a header of its own
    table["headed"] = [
        header.keys() - {"hapax-part"} == (_PLAIN if is_plain else _OUTPUT)
        for header, is_plain in zip(headers, plain, strict=True)
    ]
    table["headed"] &= np.array(["hapax-part" in header for header in headers]) == (slots[:, 1] > 1)
    return table


def effect_times(
    messages: Sequence[Message], source: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return of each effect the input partition, and when its input was written (0: unknown)."""
    headers: list[dict[str, Any]] = [dict(message.headers() or ()) for message in messages]
    sources = [header.get("hapax-source") or b"" for header in headers]
    places, _offsets = texts.sources(sources, source)
    values = [message.value() or b"" for message in messages]
    fields = texts.numbers([value[: -CHECK_DIGITS - 1] for value in values], b" ", 3)
    if fields is None:  # dead letters among them: their values are those of inputs
        fields = np.array([texts.fields_of(value) for value in values], np.int64).reshape(-1, 3)
    return places, fields[:, 2]


def dead_letters(messages: Sequence[Message], names: Names) -> Table:
    """Return EFFECT rows of the records of a dead-letter topic: their values are inputs."""
    values = [message.value() or b"" for message in messages]
    table, headers = _effects(messages, values, names)
    contents = [rules.decode(value) for value in values]
    table["number"] = [content.number if content else ODD for content in contents]
    table["t_ms"] = [content.t_ms if content else 0 for content in contents]
    table["check"] = table["hash"]
    table["part"], table["slot"], table["parts"] = ODD, DEAD, 1
    table["headed"] = [
        b"is poison" in (header.get("hapax-error") or b"")
        and header.get("hapax-attempts") == _ATTEMPTS
        and bool(header.get("hapax-app"))
        for header in headers
    ]
    return table


def _effects(
    messages: Sequence[Message], values: list[bytes], names: Names
) -> tuple[Table, list[dict[str, Any]]]:
    headers: list[dict[str, Any]] = [dict(message.headers() or ()) for message in messages]
    table = np.zeros(len(values), EFFECT)
    _place_in(table, messages, "at")
    table["hash"] = [crc32(value) for value in values]
    sources = [header.get("hapax-source") or b"" for header in headers]
    table["place"], table["source"] = texts.sources(sources, names.source)
    table["event"] = texts.tailed([header.get("hapax-id") or b"" for header in headers], names.run)
    table["key"] = texts.tailed([message.key() or b"" for message in messages], "key")
    table["dup"] = [_DUPS.get(header.get("dup"), _NO_DUP) for header in headers]
    whos = names.whos
    table["who"] = [whos.setdefault(header.get("who") or b"", len(whos)) for header in headers]
    return table, headers
