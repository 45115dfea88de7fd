"""One connection through the fault proxy: frames go both ways, and rules have their say."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING

from tests.kit.faults import PATIENCE_S, Rule
from tests.kit.frames import Request, correlation_id, read_request, with_error

if TYPE_CHECKING:
    from collections.abc import Callable

    Match = Callable[[Request, int], Rule | None]

_ZERO_LINGER = struct.pack("ii", 1, 0)  # close() then sends RST instead of FIN


class Connection:
    """One client's connection and its twin to the broker."""

    def __init__(
        self, match: Match, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
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
    """Close with RST, the way a crashed machine or a firewall does it."""
    if not writer.is_closing():
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, _ZERO_LINGER
        )
    writer.transport.abort()
