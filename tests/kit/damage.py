"""Record sets of partition 0 damaged on a broker's disk, as a bad sector leaves them."""

import struct
from pathlib import Path

import pyarrow as pa
from kafka.record.util import calc_crc32c

from hapax.sandbox import Sandbox

_HEAD = 61
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_ZSTD = 4


def damage(
    sandbox: Sandbox,
    topic: str,
    offset: int,
    *,
    codec: bool = False,
    number: int = 7,
) -> None:
    """Overwrite the records of the set that begins at an offset, or name an unknown codec.

    Its header stays readable, so a broker hands it out like any other. The set must be compressed.
    """
    log, _content, at = _found(sandbox, topic, offset)
    with log.open("r+b") as file:
        if codec:
            file.seek(at + _ATTRIBUTES_AT)
            file.write(struct.pack(">h", number))
        else:
            file.seek(at + _HEAD + 5)
            file.write(b"\xff" * 16)


def reseal(sandbox: Sandbox, topic: str, offset: int) -> None:
    """Make the checksum of a set fit what it holds: its damage is then no matter of the disk."""
    log, content, at = _found(sandbox, topic, offset)
    length = struct.unpack_from(">i", content, at + 8)[0]
    _write(
        log,
        at + _CRC_AT,
        struct.pack(">I", calc_crc32c(content[at + _ATTRIBUTES_AT : at + 12 + length])),
    )


def bomb(sandbox: Sandbox, topic: str, offset: int, size: int) -> int:
    """Put zeros into a set, compressed with zstd as a Java producer does it; return their bytes.

    The set must be uncompressed and have room for them.
    """
    log, content, at = _found(sandbox, topic, offset)
    end = at + 12 + struct.unpack_from(">i", content, at + 8)[0]
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, "zstd") as stream:
        for _ in range(size >> 20):
            stream.write(bytes(1 << 20))
    frame = packed.getvalue().to_pybytes()
    room = end - (at + _HEAD) - len(frame) - 8
    assert room >= 0, "the set is too small for the bomb"
    skipped = struct.pack("<II", 0x184D2A50, room) + bytes(room)  # a frame that readers skip
    _write(log, at + _HEAD, frame + skipped)
    _write(log, at + _ATTRIBUTES_AT, struct.pack(">h", _ZSTD))
    reseal(sandbox, topic, offset)
    return len(frame)


def _found(sandbox: Sandbox, topic: str, offset: int) -> tuple[Path, bytes, int]:
    folder = sandbox.kafka.brokers[0].folder
    (log,) = folder.glob(f"data/{topic}-0/00000000000000000000.log")
    content = log.read_bytes()
    at = 0
    while struct.unpack_from(">q", content, at)[0] != offset:
        at += 12 + struct.unpack_from(">i", content, at + 8)[0]
    return log, content, at


def _write(log: Path, at: int, content: bytes) -> None:
    with log.open("r+b") as file:
        file.seek(at)
        file.write(content)
