"""Record sets damaged on a broker's disk, as a bad sector leaves them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from service.sandbox import Sandbox

_HEAD = 61
_ATTRIBUTES_AT = 21


def damage(
    sandbox: Sandbox, topic: str, partition: int, offset: int, *, codec: bool = False
) -> None:
    """Overwrite the records of the set that begins at an offset, or name an unknown codec.

    Its header stays readable, so a broker hands it out like any other. The set must be compressed.
    """
    (log,) = _folder(sandbox).glob(f"data/{topic}-{partition}/00000000000000000000.log")
    content = log.read_bytes()
    at = 0
    while struct.unpack_from(">q", content, at)[0] != offset:
        at += 12 + struct.unpack_from(">i", content, at + 8)[0]
    with log.open("r+b") as file:
        if codec:
            file.seek(at + _ATTRIBUTES_AT)
            file.write(struct.pack(">h", 7))
        else:
            file.seek(at + _HEAD + 5)
            file.write(b"\xff" * 16)


def _folder(sandbox: Sandbox) -> Path:
    return sandbox.kafka.brokers[0].folder
