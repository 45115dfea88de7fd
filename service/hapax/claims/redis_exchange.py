"""One request that is sent now and answered later, on a connection that it has for itself.

Until then all other calls take other connections of the pool, so an answer that comes late, or that
is not wanted any more, cannot be read as that of another call. Replies are read from the socket,
many small ones at once, without an object for each: the client's own reader costs several
microseconds a reply, and a batch of claims has thousands.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, NoScriptError, RedisError, ResponseError

from hapax.claims.redis_connection import unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from redis import Redis
    from redis.connection import Connection


Answer = TypeVar("Answer")
_RECEIVE = 1 << 16


class Exchange:
    """A request on its way. What fails while it is sent is raised where its answer is read."""

    def __init__(self, client: Redis, *parts: bytes) -> None:
        """Send the request; it blocks only while the server takes in less than is sent."""
        self._client = client
        self._connection: Connection | None = None
        self._failed: Exception | None = None
        try:
            self._connection = client.connection_pool.get_connection()
            self._connection.send_packed_command(parts)  # type: ignore[no-untyped-call]
        except (RedisError, OSError) as error:
            self._failed = error
            self.drop()

    def read(self, read: Callable[[Connection], Answer]) -> Answer:
        """Raise ClaimsUnavailableError; a connection not read to its end is dropped."""
        connection = self._connection
        if self._failed is not None or connection is None:
            error = self._failed or RuntimeError("an answer is read once")
            raise unavailable(self._client, error) from error
        try:
            answer = read(connection)
        except (RedisError, OSError) as error:
            raise unavailable(self._client, error) from error
        else:
            self._connection = None
            self._client.connection_pool.release(connection)
            return answer
        finally:
            self.drop()

    def drop(self) -> None:
        """Give the answer up; after it was read, nothing is left to do."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()  # type: ignore[no-untyped-call]
            self._client.connection_pool.release(connection)

    def __del__(self) -> None:
        """Give a forgotten connection back."""
        self.drop()


class Replies:
    """The replies to one request; nothing is expected after the last of them."""

    def __init__(self, connection: Connection) -> None:
        # The client has no call for bytes as they come.
        self._socket: Any = connection._sock  # noqa: SLF001
        self._bytes = bytearray()
        self._at = 0

    def numbers(self, count: int) -> bytes:
        """Return the digits of replies that are 0 or 1; raises the first error among them."""
        # Every reply has 4 bytes at least.
        while len(self._bytes) - self._at < 4 * count:
            self._more()
        chunk = self._bytes[self._at : self._at + 4 * count]
        if chunk[::4] == b":" * count and chunk[2::4] == b"\r" * count:
            self._at += 4 * count
            return bytes(chunk[1::4])
        return b"".join(b"%d" % self.value() for _ in range(count))

    def values(self, count: int) -> list[Any]:
        return [self.value() for _ in range(count)]

    def value(self) -> Any:
        """Return one reply of RESP2 or RESP3: bytes, int, None or a list; raises ResponseError."""
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            length = int(rest)
            return None if length < 0 else self._exactly(length)
        if kind == b":":
            return int(rest)
        if kind in {b"*", b"~"}:
            return None if int(rest) < 0 else self.values(int(rest))
        if kind in {b"+", b",", b"("}:
            return rest
        if kind == b"-":
            error = NoScriptError if rest.startswith(b"NOSCRIPT") else ResponseError
            raise error(rest.decode(errors="replace"))
        return self._value_of_3(kind, rest)

    def _value_of_3(self, kind: bytes, rest: bytes) -> Any:
        """Return a reply of a kind that RESP3 has in addition; a map as its keys and values."""
        if kind == b"_":
            return None
        if kind == b"#":
            return int(rest == b"t")
        if kind == b"%":
            return self.values(2 * int(rest))
        if kind == b">":  # news, which come between replies
            self.values(int(rest))
            return self.value()
        raise InvalidResponse("this is no answer of Redis")

    def _line(self) -> bytes:
        while (end := self._bytes.find(b"\r\n", self._at)) < 0:
            if len(self._bytes) - self._at > _RECEIVE:
                raise InvalidResponse("this is no answer of Redis")
            self._more()
        line = bytes(self._bytes[self._at : end])
        self._at = end + 2
        return line

    def _exactly(self, length: int) -> bytes:
        while len(self._bytes) - self._at < length + 2:
            self._more()
        text = bytes(self._bytes[self._at : self._at + length])
        self._at += length + 2
        return text

    def _more(self) -> None:
        received = self._socket.recv(_RECEIVE)
        if not received:
            raise RedisConnectionError("the server closed the connection")
        self._bytes += received


def without(
    indices: Sequence[int], answers: bytearray | list[Any], gone: Iterable[int]
) -> tuple[Sequence[int], list[tuple[int, Any]]]:
    """Take ``gone``, few of many, out of ``answers``, which is changed; return both parts."""
    left, out = list(indices), []
    for index in sorted(gone, reverse=True):
        at = bisect_left(left, index)
        if at < len(left) and left[at] == index:
            out.append((index, answers[at]))
            del left[at], answers[at]
    return left, out
