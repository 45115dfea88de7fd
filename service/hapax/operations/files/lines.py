"""Bytes that arrive in pieces, as whole lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.errors import HapaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHUNK_BYTES = 256 << 10
LINE_BYTES_MAX = 64 << 20


def whole_lines(read: Callable[[], bytes | None]) -> Iterator[bytes]:
    """Yield lines with their ends; the last one may lack it.

    ``read`` returns further bytes, b"" at the end, after which what is left is a line, and None
    when reading stops before: then it is none, because the rest of it may still come. Raises
    HapaxError for a line that does not end within LINE_BYTES_MAX.
    """
    rest: list[bytes] = []
    held = 0
    while (chunk := read()) is not None:
        if not chunk:
            if rest:
                yield b"".join(rest)
            return
        head, newline, others = chunk.partition(b"\n")
        rest.append(head + newline)
        held += len(rest[-1])
        if newline:
            yield b"".join(rest)
            *whole, last = others.split(b"\n")
            for each in whole:
                yield each + b"\n"
            rest, held = ([last] if last else []), len(last)
        if held > LINE_BYTES_MAX:
            raise HapaxError(
                f"a line does not end within {LINE_BYTES_MAX >> 20} MiB: is this a text file?"
            )
