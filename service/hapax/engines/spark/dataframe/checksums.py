"""Bytes with a checksum for each block, so that damage is found before anything is decoded.

Arrow reads a stream that was cut between two of its messages to a clean end, and trusts the
offsets inside of one that was altered (measured: every cut of a spooled file ends clean or in an
error of Arrow's, never in a word about rows that are missing).
"""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

BLOCK_BYTES = 1 << 20


class Checksums(msgspec.Struct, frozen=True):
    """What a file must hold: its size in bytes, and the CRC-32 of each block in order."""

    size: int
    blocks: tuple[int, ...]


class DamagedError(Exception):
    """The file does not hold what was written; the text says where it differs."""


class BlockWriter(io.RawIOBase):
    """Passes bytes on to ``target`` and sums them."""

    def __init__(self, target: Any) -> None:
        super().__init__()
        self._target = target
        self._size = 0
        self._sum = 0
        self._blocks: list[int] = []

    def writable(self) -> bool:
        """Say yes."""
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all of it."""
        view = memoryview(data).cast("B")
        self._target.write(view)
        begin = 0
        while begin < len(view):
            part = view[begin : begin + BLOCK_BYTES - self._size % BLOCK_BYTES]
            self._sum = zlib.crc32(part, self._sum)
            self._size += len(part)
            begin += len(part)
            if self._size % BLOCK_BYTES == 0:
                self._blocks.append(self._sum)
                self._sum = 0
        return len(view)

    @property
    def checksums(self) -> Checksums:
        """The sums of all that was written so far."""
        rest = (self._sum,) if self._size % BLOCK_BYTES else ()
        return Checksums(self._size, (*self._blocks, *rest))


class BlockReader(io.RawIOBase):
    """Gives out the bytes of ``source`` block by block, each after its sum was compared.

    Raises DamagedError for a block that is short, altered, or beyond the size that was written.
    """

    def __init__(self, source: Any, checksums: Checksums) -> None:
        super().__init__()
        self._source = source
        self._checksums = checksums
        self._at = 0
        self._block = memoryview(b"")

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer as far as the block reaches."""
        target = memoryview(buffer).cast("B")
        if not self._block:
            self._block = self._next()
        count = min(len(target), len(self._block))
        target[:count] = self._block[:count]
        self._block = self._block[count:]
        return count

    def finish(self) -> None:
        """Compare what the decoder has left unread: an Arrow stream may end before its file."""
        while self._next():
            pass

    def _next(self) -> memoryview:
        sums = self._checksums
        begin = self._at * BLOCK_BYTES
        wanted = min(BLOCK_BYTES, sums.size - begin)
        if wanted <= 0:
            if self._source.read(1):
                raise DamagedError(f"it is longer than the {sums.size} bytes that were written")
            return memoryview(b"")
        block = memoryview(self._source.read(wanted))
        if len(block) < wanted:
            raise DamagedError(
                f"it ends after {begin + len(block)} of the {sums.size} bytes that were written"
            )
        if zlib.crc32(block) != sums.blocks[self._at]:
            raise DamagedError(f"its bytes {begin} to {begin + wanted - 1} are not as written")
        self._at += 1
        return block
