"""How a record lies in the spool: a list in MessagePack, without what follows from its sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core.ports import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hapax.spool.spool import SpoolRow

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Message]).decode
_ARRAY = b"\xdd"
"""In MessagePack: the count follows, as four bytes, and then so many values."""


def stored(message: Message, now_ms: int) -> bytes:
    """Return the bytes of a record; without a time it gets this one."""
    return _encode(
        (
            message.topic,
            message.value,
            message.key,
            message.partition,
            now_ms if message.timestamp_ms is None else message.timestamp_ms,
            message.headers,
        )
    )


def with_id(
    headers: Iterable[tuple[str, bytes | None]], id_header: str, given: str | bytes | None
) -> list[tuple[str, bytes | None]]:
    """Return the headers with the id that a caller has given, if any, in place of another."""
    if given is None:
        return [*headers]
    value = given.encode() if isinstance(given, str) else given
    return [*(one for one in headers if one[0] != id_header), (id_header, value)]


def message_id(spool: str, sequence: int) -> bytes:
    return f"{spool}/{sequence}".encode()


def messages(row: SpoolRow, spool: str, id_header: str) -> list[Message]:
    """Return what to produce; a record without the header of ids gets its own."""
    prefix = f"{spool}/".encode()
    found = _decode(b"".join((_ARRAY, row.records.to_bytes(4), row.content)))
    for sequence, message in enumerate(found, row.first):
        headers = message.headers
        if not headers or id_header not in {name for name, _ in headers}:
            headers.append((id_header, b"%b%d" % (prefix, sequence)))
    return found
