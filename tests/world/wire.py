"""What a producer asks a broker for, read off the wire: acknowledgements, idempotence, codec.

A relay stands between a client and a broker whose listener advertises the relay's port
(``Sandbox(proxied=True)``). Formats: the protocol guide of Apache Kafka, Produce versions 3 to 13.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from hapax.sandbox import Sandbox

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_PRODUCE = 0
_FLEXIBLE_FROM, _TOPIC_IDS_FROM, _TRANSACTIONAL_FROM = 9, 13, 3


class Produced(NamedTuple):
    """One request. ``codec`` and ``idempotent`` are those of its first batch."""

    version: int
    acks: int
    codec: str
    idempotent: bool

    def __str__(self) -> str:
        acks = "all" if self.acks == -1 else str(self.acks)
        idempotent = "idempotent" if self.idempotent else "not idempotent"
        return f"acks={acks}, {idempotent}, {self.codec}"


class Relay:
    """Forwards bytes between clients and one broker; ``produced`` are the requests to produce."""

    def __init__(self, sandbox: Sandbox) -> None:
        (broker,) = sandbox.kafka.brokers
        assert broker.proxy_listen_port is not None
        self._target = ("127.0.0.1", broker.proxy_target_port)
        self._listener = socket.create_server(("127.0.0.1", broker.proxy_listen_port))
        self.bootstrap = f"127.0.0.1:{broker.proxy_listen_port}"
        self.produced: list[Produced] = []
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # a thread that waits in accept holds the port
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._target)
                self._sockets += [client, broker]
                for source, target, watch in ((client, broker, True), (broker, client, False)):
                    forward = partial(self._forward, source, target, watch=watch)
                    threading.Thread(target=forward, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, *, watch: bool) -> None:
        held = b""
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                target.sendall(content)
                held = self._watch(held + content) if watch else b""
            target.shutdown(socket.SHUT_WR)

    def _watch(self, held: bytes) -> bytes:
        """Take whole frames off; return the rest."""
        while len(held) >= 4:
            (size,) = struct.unpack_from(">i", held)
            if len(held) < 4 + size:
                break
            if struct.unpack_from(">h", held, 4) == (_PRODUCE,):
                self.produced.append(produced(held[4 : 4 + size]))
            held = held[4 + size :]
        return held


class _Frame:
    """A place in the bytes of a request."""

    def __init__(self, content: bytes, at: int) -> None:
        self._content = content
        self.at = at

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from(">" + form, self._content, self.at)
        self.at += struct.calcsize(">" + form)
        return int(value)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._content[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def skip_text(self, *, compact: bool) -> None:
        size = self.varint() - 1 if compact else self.take("h")
        self.at += max(0, size)


def produced(frame: bytes) -> Produced:
    """Read a request to produce."""
    at = _Frame(frame, 2)
    version = at.take("h")
    compact = version >= _FLEXIBLE_FROM
    at.take("i")
    at.skip_text(compact=False)  # the client's name is never compact
    if compact:
        at.varint()  # tagged fields of the header
    if version >= _TRANSACTIONAL_FROM:
        at.skip_text(compact=compact)
    acks = at.take("h")
    at.take("i")  # timeout
    _count(at, compact=compact)
    if version >= _TOPIC_IDS_FROM:
        at.at += 16
    else:
        at.skip_text(compact=compact)
    _count(at, compact=compact)
    at.take("i")  # partition
    _count(at, compact=compact)  # bytes of the records
    return _batch(at, version, acks)


def _count(at: _Frame, *, compact: bool) -> int:
    return at.varint() - 1 if compact else at.take("i")


def _batch(at: _Frame, version: int, acks: int) -> Produced:
    at.take("q")  # base offset
    at.take("i")
    at.take("i")  # leader epoch
    if at.take("b") < 2:  # magic: formats before 0.11 know no producer
        return Produced(version, acks, "before 0.11", idempotent=False)
    at.take("i")
    attributes = at.take("h")
    at.at += 4 + 8 + 8
    return Produced(version, acks, CODECS[attributes & 7], idempotent=at.take("q") >= 0)
