"""The other side of isolated_calls.py: a process that does nothing but call the transform.

``python -m hapax.engines.isolated_process FD package.module:function [FOLDER]``, an empty name for
the identity, and the folder where business code is found. Over the socket FD: a
CallLimits in JSON, one empty frame when the function is loaded, then for each list of records their
results.
"""

from __future__ import annotations

import ctypes
import signal
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hapax.core.call_window import CallLimits
from hapax.core.errors import ConfigurationError
from hapax.core.ports import Interrupt
from hapax.core.records import Record
from hapax.core.transform import Failure, load_form
from hapax.engines.overlapping_calls import open_transformer

if TYPE_CHECKING:
    from hapax.core.transform import Result

FRAME = struct.Struct("!Q")
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
_SHARE = 0.9
"""Of the memory that is left: the rest is for the process that waits."""


def send(to: socket.socket, content: bytes) -> None:
    to.sendall(FRAME.pack(len(content)) + content)


def receive(source: socket.socket) -> bytes:
    """Return one frame; raise EOFError when the other side is gone."""
    (length,) = FRAME.unpack(_exactly(source, FRAME.size))
    return _exactly(source, length)


def _exactly(source: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = source.recv(min(count - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def main(words: list[str]) -> None:
    channel = socket.socket(fileno=int(words[0]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # no person raises KeyboardInterrupt then
    _end_with_parent()
    _limit_memory()
    try:
        limits = msgspec.json.decode(receive(channel), type=CallLimits)
        sys.path += words[2:]
        form = load_form(words[1] or None)
        # What takes too long here is for the other side to judge: it ends this process.
        transformer = open_transformer(form, msgspec.structs.replace(limits, timeout_s=None))
    except (ConfigurationError, EOFError, OSError) as error:
        sys.stderr.write(f"hapax: a process for isolated calls: {error}\n")
        return
    decoder, interrupt = msgspec.msgpack.Decoder(list[Record]), Interrupt()
    with suppress(EOFError, OSError):
        send(channel, b"")
        while True:
            results = transformer.apply_all(decoder.decode(receive(channel)), interrupt, {})
            send(channel, msgspec.msgpack.encode([_encodable(result) for result in results]))


def _encodable(result: Result | None) -> Result | None:
    try:
        msgspec.msgpack.encode(result)
    except Exception as error:  # noqa: BLE001 - whatever an output holds that is no text or number
        text = f"an output cannot be encoded: {type(error).__name__}: {error}"
        return Failure("Poison", text, 1)
    return result


def _end_with_parent() -> None:
    """Ask Linux to end this process with its parent, also inside of an endless call."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))


def _limit_memory() -> None:
    """Let what asks for more die alone: a container out of memory is killed as a whole."""
    left = memory_left()
    if left is None:
        return
    with suppress(ImportError, OSError, ValueError):
        import resource

        _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = int(left * _SHARE)
        if hard == resource.RLIM_INFINITY or limit < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def memory_left() -> int | None:
    """Return the bytes that machine and container have left; None where neither says."""
    found = []
    with suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    with suppress(OSError, ValueError):  # cgroup v2; "max" is no number
        group = Path("/sys/fs/cgroup")
        found.append(
            int((group / "memory.max").read_text(encoding="ascii"))
            - int((group / "memory.current").read_text(encoding="ascii"))
        )
    return max(0, min(found)) if found else None


if __name__ == "__main__":
    main(sys.argv[1:])
