"""One fault: which request it strikes, what it does to it, and what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Literal

from tests.kit.frames import APIS, Request, error_code

Action = Literal["hold", "delay", "drop", "reset_before", "reset_after", "mute_after"]
PATIENCE_S = 30.0


class Rule:
    """Strikes the ``nth`` request from when it was added, and ``times - 1`` more behind it.

    ``api`` is a name of the protocol guide, or ``*``; ``client_id`` None means any client.

    hold          kept, with the connection to the broker, also when the client is gone; what is
                  behind it on this connection waits too; ``release()`` delivers it
    delay         the same, for ``delay_ms``
    drop          never delivered; the connection stays
    reset_before  never delivered; the client's connection is reset
    reset_after   delivered and answered; the answer is lost with the client's connection
    mute_after    delivered and answered; the answer is lost, the connection stays

    Events: ``hit`` (the request came), ``released`` (a held or delayed one was written to the
    broker), ``answered`` (the broker answered). ``hits`` counts. ``error_code`` is the answer's.
    """

    def __init__(
        self,
        api: str,
        action: Action,
        *,
        nth: int = 1,
        times: int = 1,
        client_id: str | None = None,
        delay_ms: int = 0,
    ) -> None:
        assert api == "*" or api in APIS.values(), f"no API is called {api}"
        self.api = api
        self.action = action
        self.client_id = client_id
        self.delay_ms = delay_ms
        self.hits = 0
        self.hit = threading.Event()
        self.released = threading.Event()
        self.answered = threading.Event()
        self.error_code: int | None = None
        self._struck = range(nth, nth + times)
        self._seen = 0
        self._gate: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def __repr__(self) -> str:
        return f"Rule({self.api} {self.action}, hits={self.hits})"

    # For tests: every wait is bounded and fails with a sentence.

    def wait_hit(self) -> None:
        """Wait until the fault has struck."""
        assert self.hit.wait(PATIENCE_S), f"{self} has not struck"

    def release(self) -> None:
        """Let the held request go; return when it is on its way to the broker."""
        self.wait_hit()
        assert self._gate is not None, f"{self} holds nothing"
        loop, gate = self._gate
        loop.call_soon_threadsafe(gate.set)
        assert self.released.wait(PATIENCE_S), f"{self} was not delivered"

    def wait_answered(self) -> int | None:
        """Wait for the broker; return its error code, None where answers are not understood."""
        assert self.answered.wait(PATIENCE_S), f"{self} has no answer"
        return self.error_code

    # For the proxy, in its thread.

    def strikes(self, request: Request) -> bool:
        """Count a request; say whether it is one to strike."""
        if self.api not in {"*", request.api} or self.client_id not in {None, request.client_id}:
            return False
        self._seen += 1
        return self._seen in self._struck

    async def suffer(self) -> bool:
        """Do what happens before delivery; say whether to deliver."""
        self.hits += 1
        if self.action == "hold":
            gate = asyncio.Event()
            self._gate = asyncio.get_running_loop(), gate
            self.hit.set()
            await gate.wait()
        self.hit.set()
        if self.action == "delay":
            await asyncio.sleep(self.delay_ms / 1000)
        return self.action not in {"drop", "reset_before"}

    def take_answer(self, request: Request, answer: bytes) -> None:
        """Keep what the broker said."""
        with contextlib.suppress(KeyError):
            self.error_code = error_code(request, answer)
        self.answered.set()
