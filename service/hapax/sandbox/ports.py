"""Loopback ports that no other process is given."""

from __future__ import annotations

import socket
import sys

from hapax.sandbox.machine import SandboxError

LOOPBACK = "127.0.0.1"


class Ports:
    """Ports chosen by the kernel and kept for as long as this object is open.

    On Linux a socket that is bound with SO_REUSEADDR and does not listen keeps the kernel from
    handing its port to a process that asks for a free one or opens a connection, and still lets a
    server that names the port (and sets SO_REUSEADDR, as the JVM and Redis do) listen on it. So a
    killed broker finds its port free when it comes back. Elsewhere no port is reserved.
    """

    def __init__(self) -> None:
        self._kept: list[socket.socket] = []

    def reserve(self, wanted: int = 0) -> int:
        """Return a free port of 127.0.0.1 that stays reserved; ``wanted``: this one, or none."""
        reservation = socket.socket()
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reservation.bind((LOOPBACK, wanted))
        except OSError as error:
            reservation.close()
            raise SandboxError(f"Port {wanted} of {LOOPBACK}: {error.strerror}.") from error
        port: int = reservation.getsockname()[1]
        if sys.platform == "linux":
            self._kept.append(reservation)
        else:
            reservation.close()
        return port

    def close(self) -> None:
        """Give all ports back."""
        while self._kept:
            self._kept.pop().close()
