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
import struct
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from tests.kit.faults import PATIENCE_S, Rule
from tests.kit.frames import Request, correlation_id, read_request

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping

    from service.sandbox import Sandbox

__all__ = ["FaultProxy", "Rule"]

T = TypeVar("T")
_ZERO_LINGER = struct.pack("ii", 1, 0)  # close() then sends RST instead of FIN


class FaultProxy:
    """Listens on one loopback port per broker, in a thread of its own.

    ``routes``: the port that a broker advertises, to the port where it really listens.
    """

    def __init__(self, routes: Mapping[int, int]) -> None:
        self._listeners = {
            socket.create_server(("127.0.0.1", advertised)): real
            for advertised, real in routes.items()
        }
        self._rules: list[Rule] = []
        self._seen: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._offline = False
        self._connections: dict[_Connection, asyncio.Task[None] | None] = {}
        self._servers: list[asyncio.Server] = []
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

    @property
    def bootstrap(self) -> str:
        """What a client that goes through the proxy is given."""
        return ",".join(f"127.0.0.1:{one.getsockname()[1]}" for one in self._listeners)

    def add(self, rule: Rule) -> Rule:
        """Arm a fault. Where several would strike one request the oldest does."""
        self._rules = [*self._rules, rule]
        return rule

    def clear(self) -> None:
        """Disarm all faults; what is held stays held."""
        self._rules = []

    def seen(self, api: str) -> int:
        """Return how many such requests have come since the start, harmed or not."""
        return self._seen[api]

    def wait_seen(self, api: str, count: int) -> None:
        """Wait until ``count`` such requests have come since the start."""
        with self._changed:
            came = self._changed.wait_for(lambda: self._seen[api] >= count, PATIENCE_S)
        assert came, f"{self._seen[api]} of {count} {api} came"

    def cut(self, client_id: str | None = None) -> int:
        """Reset the connections of one client, or all; return how many. What is held stays."""
        return self._call(self._cut(client_id))

    @contextlib.contextmanager
    def offline(self) -> Iterator[None]:
        """Reset every connection, old and new, for as long as this lasts."""
        self._offline = True
        try:
            self.cut()
            yield
        finally:
            self._offline = False

    def start(self) -> Self:
        """Accept connections; those made before wait in the backlog."""
        self._thread.start()
        self._call(self._start())
        return self

    def close(self) -> None:
        """Stop. What is still held is never delivered."""
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def match(self, request: Request) -> Rule | None:
        """Count a request; return the fault that strikes it (in the proxy's thread)."""
        with self._changed:
            self._seen[request.api] += 1
            self._changed.notify_all()
        striking = [rule for rule in self._rules if rule.strikes(request)]
        return striking[0] if striking else None

    def _call(self, coroutine: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    async def _start(self) -> None:
        for listener, port in self._listeners.items():
            serve = partial(self._serve, port)
            self._servers.append(await asyncio.start_server(serve, sock=listener))

    async def _serve(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        connection = _Connection(self, reader, writer)
        self._connections[connection] = asyncio.current_task()
        try:
            if not self._offline:
                await connection.run(port)
        finally:
            connection.reset()
            del self._connections[connection]

    async def _cut(self, client_id: str | None) -> int:
        chosen = [one for one in self._connections if client_id in {None, one.client_id}]
        for connection in chosen:
            connection.reset()
        return len(chosen)

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        tasks = [task for task in self._connections.values() if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # one turn for the transports to close their sockets


class _Connection:
    """One client's connection and its twin to the broker."""

    def __init__(
        self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.client_id: str | None = None
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._client_gone = False
        self._sent: dict[int, tuple[Request, Rule | None]] = {}

    def reset(self) -> None:
        """Break the client's side; the broker's side goes on for as long as something is held."""
        _reset(self._writer)

    async def run(self, port: int) -> None:
        """Carry frames both ways until one side has gone and nothing is owed to a rule."""
        try:
            broker, to_broker = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:
            return
        answers = asyncio.create_task(self._carry_answers(broker))
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._carry_requests(to_broker)
            self._client_gone = True
            if self._owes_answer():
                await asyncio.wait([answers], timeout=PATIENCE_S)
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)
            _reset(to_broker)

    async def _carry_requests(self, to_broker: asyncio.StreamWriter) -> None:
        while True:
            frame = await _read_frame(self._reader)
            request = read_request(frame)
            self.client_id = request.client_id
            rule = self._proxy.match(request)
            if rule is not None and not await rule.suffer():
                if rule.action == "reset_before":
                    return
                continue
            self._sent[request.correlation_id] = request, rule
            await _write_frame(to_broker, frame)
            if rule is not None:
                rule.released.set()

    async def _carry_answers(self, broker: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                answer = await _read_frame(broker)
                request, rule = self._sent.pop(correlation_id(answer))
                if rule is not None:
                    rule.take_answer(request, answer)
                    if rule.action == "mute_after":
                        continue
                    if rule.action == "reset_after":
                        break
                if not self._writer.is_closing():
                    with contextlib.suppress(ConnectionError):
                        await _write_frame(self._writer, answer)
                if self._client_gone and not self._owes_answer():
                    break
        self.reset()

    def _owes_answer(self) -> bool:
        return any(rule for _, rule in self._sent.values())


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return await reader.readexactly(int.from_bytes(size))


async def _write_frame(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(len(frame).to_bytes(4) + frame)
    await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST, the way a crashed machine or a firewall does it."""
    if not writer.is_closing():
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, _ZERO_LINGER
        )
    writer.transport.abort()
