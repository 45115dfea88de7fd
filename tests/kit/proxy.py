"""A proxy that understands Kafka's frames and makes chosen requests go wrong.

A broker has a second listener that advertises the proxy's port instead of its own::

    with FaultProxy.before(sandbox) as proxy:
        late = proxy.add(Rule("EndTxn", "hold"))  # the next EndTxn does not reach the broker ...
        ...  # the client, given proxy.bootstrap, loses patience and sends it again
        late.release()  # ... until now
        assert late.wait_answered() == 0  # and the broker took it
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from tests.kit.connection import Connection
from tests.kit.faults import PATIENCE_S, Rule

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping

    from hapax.sandbox import Sandbox
    from tests.kit.frames import Request

__all__ = ["FaultProxy", "Rule"]

T = TypeVar("T")


class FaultProxy:
    """Listens on one loopback port per broker, in a thread of its own.

    ``routes``: the port that a broker advertises, to the port where it really listens.
    ``bootstrap``: what a client that goes through the proxy is given.
    """

    def __init__(self, routes: Mapping[int, int]) -> None:
        self._listeners = {
            socket.create_server(("127.0.0.1", advertised)): real
            for advertised, real in routes.items()
        }
        names = (listener.getsockname() for listener in self._listeners)
        self.bootstrap = ",".join(f"{host}:{port}" for host, port in names)
        self._rules: list[Rule] = []
        self._seen: Counter[str] = Counter()
        self._offline: set[int | None] = set()
        self._unanswered: list[Request] = []
        self._connections: set[Connection] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy")

    @classmethod
    def before(cls, sandbox: Sandbox) -> Self:
        """Stand before all brokers of a sandbox that is ``proxied``."""
        return cls(
            {
                broker.proxy_listen_port: broker.proxy_target_port
                for broker in sandbox.kafka.brokers
                if broker.proxy_listen_port is not None and broker.proxy_target_port is not None
            }
        )

    def add(self, rule: Rule) -> Rule:
        """Arm a fault. Where several would strike one request the oldest does."""
        self._rules = [*self._rules, rule]
        return rule

    def remove(self, rule: Rule) -> None:
        """Disarm a fault; what it holds stays held. It may be gone already."""
        self._rules = [each for each in self._rules if each is not rule]

    def clear(self) -> None:
        """Disarm all faults; what is held stays held."""
        self._rules = []

    def seen(self, api: str) -> int:
        """Return how many such requests have come since the start, harmed or not."""
        return self._seen[api]

    def unanswered(self, client_id: str) -> list[str]:
        """Return the APIs of requests that never got their answers, on connections that ended.

        One whose answer was written just when the client closed the connection is not among them.
        """
        return [each.api for each in self._unanswered if each.client_id == client_id]

    def cut(self, client_id: str | None = None, port: int | None = None) -> int:
        """Reset the connections of one client or all, to one broker or all; return how many.

        ``port``: where the broker really listens. What is held stays.
        """
        return self._call(self._cut(client_id, port))

    @contextlib.contextmanager
    def offline(self, port: int | None = None) -> Iterator[None]:
        """Reset every connection, old and new, to one broker or all, for as long as this lasts."""
        self._offline.add(port)
        try:
            self.cut(port=port)
            yield
        finally:
            self._offline.discard(port)

    def start(self) -> Self:
        """Accept connections; those made before wait in the backlog."""
        self._thread.start()
        self._call(self._start())
        return self

    def close(self) -> None:
        """Stop. What is still held is never delivered. May be called twice.

        Raises what went wrong inside: a proxy that broke is no witness.
        """
        if self._loop.is_closed():
            return
        ends = self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _match(self, request: Request, port: int) -> Rule | None:
        """Count a request; return the fault that strikes it."""
        self._seen[request.api] += 1
        striking = [rule for rule in self._rules if rule.strikes(request, port)]
        return striking[0] if striking else None

    def _call(self, coroutine: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    async def _start(self) -> None:
        for listener, port in self._listeners.items():
            listener.settimeout(0)
            self._loop.add_reader(listener, self._accept, listener, port)

    def _accept(self, listener: socket.socket, port: int) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            client, _ = listener.accept()
            self._tasks.append(self._loop.create_task(self._serve(client, port)))

    async def _serve(self, client: socket.socket, port: int) -> None:
        reader, writer = await asyncio.open_connection(sock=client)
        connection = Connection(self._match, reader, writer)
        self._connections.add(connection)
        try:
            if not self._offline & {None, port}:
                await connection.run(port)
        finally:
            connection.reset()
            self._connections.discard(connection)
            self._unanswered += connection.unanswered

    async def _cut(self, client_id: str | None, port: int | None) -> int:
        chosen = [
            one
            for one in self._connections
            if client_id in {None, one.client_id} and port in {None, one.port}
        ]
        for connection in chosen:
            connection.reset()
        return len(chosen)

    async def _stop(self) -> list[BaseException | None]:
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        await asyncio.sleep(0)  # one turn for new tasks to take hold of their sockets
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # one turn for the transports to close theirs
        return ends


class ProxiedBroker(NamedTuple):
    """One broker, and two ways to it."""

    direct: str
    proxied: str
    proxy: FaultProxy
