"""A proxy that understands Kafka's frames and makes chosen requests go wrong.

A broker has a second listener that advertises the proxy's port instead of its own::

    with FaultProxy.before(sandbox) as proxy:
        late = proxy.add(Rule("EndTxn", "hold"))  # the next EndTxn does not reach the broker ...
        ...  # the client, given proxy.bootstrap, loses patience and sends it again
        late.release()  # ... until now
        assert late.wait_answered() == 0  # and the broker took it
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import NamedTuple, Self, TypeVar

from hapax.sandbox import Sandbox
from tests.kit.faults import PATIENCE_S, Rule
from tests.kit.frames import Request, correlation_id, read_request, with_error

Match = Callable[[Request, int], Rule | None]

# One connection through the fault proxy: frames go both ways, and rules have their say.

_ZERO_LINGER = struct.pack("ii", 1, 0)  # close() then sends RST instead of FIN


class Connection:
    """One client's connection and its twin to the broker."""

    def __init__(
        self,
        match: Match,
        link: Callable[[int], Coroutine[None, None, None]],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._link = link
        self.client_id: str | None = None
        self._match = match
        self._reader = reader
        self._writer = writer
        self._client_gone = False
        self.port = 0
        self._sent: dict[int, tuple[Request, Rule | None]] = {}
        self.unanswered: list[Request] = []
        """Requests that came, and whose answers never went to the client; complete at the end."""

    def reset(self) -> None:
        """Break the client's side; the broker's side goes on for as long as something is held."""
        _reset(self._writer)

    async def run(self, port: int) -> None:
        """Carry frames both ways until one side has gone and nothing is owed to a rule."""
        self.port = port
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
            _reset(to_broker)  # first: the wait below may be cancelled
            self.unanswered += [request for request, _ in self._sent.values()]
            answers.cancel()
            (end,) = await asyncio.gather(answers, return_exceptions=True)
            if isinstance(end, Exception):
                raise end

    async def _carry_requests(self, to_broker: asyncio.StreamWriter) -> None:
        while True:
            frame = await _read_frame(self._reader)
            await self._link(len(frame))
            request = read_request(frame)
            self.client_id = request.client_id
            rule = self._match(request, self.port)
            if rule is not None and not await rule.suffer():
                self.unanswered.append(request)
                if rule.action == "reset_before":
                    return
                continue
            self._sent[request.correlation_id] = request, rule
            await _write_frame(to_broker, frame)
            if rule is not None and rule.action != "hold_answer":
                rule.released.set()

    async def _carry_answers(self, broker: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                answer = await _read_frame(broker)
                request, rule = self._sent.pop(correlation_id(answer))
                if rule is not None:
                    rule.take_answer(request, answer)
                    if rule.action in {"mute_after", "reset_after"}:
                        self.unanswered.append(request)
                    if rule.action == "mute_after":
                        continue
                    if rule.action == "reset_after":
                        break
                    if rule.action == "refuse":
                        answer = with_error(request, answer, rule.code)
                    await rule.keep_answer()
                if self._writer.is_closing():
                    self.unanswered.append(request)
                else:
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
    if not writer.is_closing():
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, _ZERO_LINGER
        )
    writer.transport.abort()


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
        self.bytes_per_s: int | None = None  # of all requests together
        self._free_at_s = 0.0
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

    async def _cross(self, size: int) -> None:
        """Let a request take its time on the link, after those before it."""
        if self.bytes_per_s is not None:
            now_s = self._loop.time()
            self._free_at_s = max(now_s, self._free_at_s) + size / self.bytes_per_s
            await asyncio.sleep(self._free_at_s - now_s)

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
        connection = Connection(self._match, self._cross, reader, writer)
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
