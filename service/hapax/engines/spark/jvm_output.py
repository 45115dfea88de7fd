"""What the JVM and its Python processes print, without the traces of connections that have ended.

A stop drops the task that Spark has begun meanwhile. Its Python process finds its connection
closed, and PySpark prints the traceback on standard error, where the service's own lines go.
Nothing went wrong: the task is taken again at the next start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterable

TRACE = b"Traceback (most recent call last):"
ENDED = (b"BrokenPipeError", b"ConnectionResetError")


def pass_on(lines: Iterable[bytes], target: BinaryIO) -> None:
    """Copy lines as they come; a traceback is held until the line that names its error."""
    held: list[bytes] = []
    for line in lines:
        if line.startswith(TRACE) or (held and line[:1].isspace()):
            held.append(line)
            continue
        if not (held and line.startswith(ENDED)):
            target.write(b"".join([*held, line]))
            target.flush()
        held = []
    target.write(b"".join(held))
    target.flush()
