"""An address that stays while what is behind it changes, as that of a Redis with fail-over does."""

import asyncio
import contextlib
import socket
import threading
from typing import Self

_WAIT_S = 10.0
_CHUNK = 1 << 16


class Forwarder:
    """Passes connections of a port on to one of 127.0.0.1, in a thread of its own.

    address   of ours; any of 127.0.0.0/8 is there without being set up
    port      of ours; 0: any that is free
    """

    def __init__(self, target: int, address: str = "127.0.0.1", port: int = 0) -> None:
        self._target = target
        self._listener = socket.create_server((address, port))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="forwarder")

    def lead_to(self, target: int) -> int:
        """Break all connections and lead new ones to this port; return how many broke."""
        self._target = target
        return asyncio.run_coroutine_threadsafe(self._break(), self._loop).result(_WAIT_S)

    def __enter__(self) -> Self:
        self._thread.start()
        serving = asyncio.start_server(self._serve, sock=self._listener)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(_WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self.lead_to(0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT_S)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, there}
        await asyncio.gather(_pass(reader, there), _pass(there_reader, writer))
        self._open -= {writer, there}

    async def _break(self) -> int:
        broken = len(self._open) // 2
        for writer in self._open:
            writer.transport.abort()
        await asyncio.sleep(0.05)  # some turns, for the tasks to end
        return broken


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
