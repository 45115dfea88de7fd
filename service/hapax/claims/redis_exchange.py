"""One request that is sent now and answered later, on a connection that it has for itself.

Called by claims/redis.py. Between the two, all other calls take other connections of the pool, so
an answer that comes late, or that is not wanted any more, cannot be read as that of another call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from redis.exceptions import RedisError

from hapax.claims.redis_connection import unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis import Redis
    from redis.connection import Connection

Answer = TypeVar("Answer")


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
        """Return what ``read`` makes of the answer.

        Raises ClaimsUnavailableError for any error. A connection with an answer that was not read
        to its end is dropped.
        """
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
