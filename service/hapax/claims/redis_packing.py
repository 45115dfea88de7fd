"""What claims consist of, as bytes: requests, topics and numbers of any length. Pure."""

from __future__ import annotations

MORE = 0x80
"""The bit that says that more bytes of a number follow: 7 bits a byte."""


def command(*parts: bytes | str | int) -> bytes:
    """Return a request as Redis reads it: the number of its parts, and each with its length."""
    packed = [b"*%d\r\n" % len(parts)]
    for part in parts:
        text = part if isinstance(part, bytes) else str(part).encode()
        packed += (b"$%d\r\n" % len(text), text, b"\r\n")
    return b"".join(packed)


def stored_topic(topic: str, topic_id: str | None) -> str:
    """Return a topic as the store names it; Kafka allows no slash in a topic's name."""
    return f"{topic}/{topic_id}" if topic_id else topic


def first_varint(packed: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins there, and where it ends."""
    number = shift = 0
    while True:
        byte = packed[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < MORE:
            return number, at
        shift += 7
