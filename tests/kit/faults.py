"""One fault: which request it strikes, what it does to it, and what came of it."""

import asyncio
import contextlib
import random
import threading
from typing import Literal

from tests.kit.frames import APIS, Request, error_code

Action = Literal[
    "hold",
    "delay",
    "drop",
    "reset_before",
    "reset_after",
    "mute_after",
    "hold_answer",
    "refuse",
    "watch",
]
PATIENCE_S = 30.0
ALWAYS = 1 << 60
"""``times`` of a rule that never tires."""


class Rule:
    """Strikes the ``nth`` request from when it was added, and ``times - 1`` more behind it.

    ``api`` is a name of the protocol guide, or ``*``; ``client_id`` None means any client, ``port``
    (where a broker really listens) None any broker. ``commits``: only an EndTxn that asks for a
    commit (True) or an abort (False). ``after``: requests are counted anew from each request of
    this API on, so ``Rule("Produce", ..., after="EndTxn")`` strikes the first of a transaction.

    hold          kept, with the connection to the broker, also when the client is gone; what is
                  behind it on this connection waits too; ``release()`` delivers it,
                  ``discard()`` forgets it
    delay         the same, for ``delay_ms``, give or take ``jitter_ms``
    drop          never delivered; the connection stays
    reset_before  never delivered; the client's connection is reset
    reset_after   delivered and answered; the answer is lost with the client's connection
    mute_after    delivered and answered; the answer is lost, the connection stays
    hold_answer   delivered and answered; the answer waits for ``release()``, and so does what is
                  behind it
    refuse        delivered and answered; the client reads error ``code`` instead
    watch         nothing happens to it

    Events: ``hit`` (the request came), ``answered`` (the broker answered), ``released`` (it was
    written to the broker). Of a held answer: ``hit`` when that came, ``released`` when it goes on
    to the client. ``hits`` counts. ``error_code`` is the answer's.
    """

    def __init__(
        self,
        api: str,
        action: Action,
        *,
        nth: int = 1,
        times: int = 1,
        client_id: str | None = None,
        port: int | None = None,
        commits: bool | None = None,
        after: str | None = None,
        delay_ms: int = 0,
        jitter_ms: int = 0,
        code: int = 0,
    ) -> None:
        assert api == "*" or api in APIS.values(), f"no API is called {api}"
        self.api = api
        self.action = action
        self.client_id = client_id
        self.port = port
        self.commits = commits
        self.after = after
        self.delay_ms = delay_ms
        self.jitter_ms = jitter_ms
        self.code = code
        self.hits = 0
        self.hit = threading.Event()
        self.released = threading.Event()
        self.answered = threading.Event()
        self.error_code: int | None = None
        self._struck = range(nth, nth + times)
        self._seen = 0
        self._gate: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._discarded = False

    def __repr__(self) -> str:
        return f"Rule({self.api} {self.action}, hits={self.hits})"

    # For tests: every wait is bounded and fails with a sentence.

    def wait_hit(self) -> None:
        assert self.hit.wait(PATIENCE_S), f"{self} has not struck"

    def release(self) -> None:
        """Let what is held go; return when it is on its way."""
        self.wait_hit()
        self._open()
        assert self.released.wait(PATIENCE_S), f"{self} was not delivered"

    def discard(self) -> None:
        """Forget the held request, if there is one: it is never delivered."""
        self._discarded = True
        if self._gate is not None:
            self._open()

    def _open(self) -> None:
        assert self._gate is not None, f"{self} holds nothing"
        loop, gate = self._gate
        loop.call_soon_threadsafe(gate.set)

    def wait_answered(self) -> int | None:
        """Wait for the broker; return its error code, None where answers are not understood."""
        assert self.answered.wait(PATIENCE_S), f"{self} has no answer"
        return self.error_code

    # For the proxy, in its thread.

    def strikes(self, request: Request, port: int) -> bool:
        """Count a request to a broker; say whether it is one to strike."""
        if self.client_id not in {None, request.client_id} or self.port not in {None, port}:
            return False
        if request.api == self.after and self._seen < self._struck.start:
            self._seen = 0
        if self.api not in {"*", request.api} or self.commits not in {None, request.commits}:
            return False
        self._seen += 1
        return self._seen in self._struck

    async def suffer(self) -> bool:
        """Do what happens before delivery; say whether to deliver."""
        self.hits += 1
        if self.action == "hold":
            await self._wait()
        if self.action != "hold_answer":
            self.hit.set()
        if self.action == "delay":
            delay_ms = self.delay_ms + random.uniform(-self.jitter_ms, self.jitter_ms)
            await asyncio.sleep(max(0.0, delay_ms) / 1000)
        return self.action not in {"drop", "reset_before"} and not self._discarded

    async def keep_answer(self) -> None:
        """Hold an answer, if that is the action, until it is released."""
        if self.action == "hold_answer":
            await self._wait()
            self.released.set()

    async def _wait(self) -> None:
        gate = asyncio.Event()
        self._gate = asyncio.get_running_loop(), gate
        self.hit.set()
        if not self._discarded:
            await gate.wait()

    def take_answer(self, request: Request, answer: bytes) -> None:
        with contextlib.suppress(KeyError):
            self.error_code = error_code(request, answer)
        self.answered.set()
