"""Calls of a client that may never return, made so that only they wait.

``send_offsets_to_transaction`` ignores its timeout while its group's coordinator is away
(librdkafka #5456, #5511): it was seen to come back with the broker, and not at all. Python cannot
interrupt it, but it need not wait for it: a new producer fences the old one, whatever that does
once its call returns.
"""

from __future__ import annotations

import queue
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

HANG_MARGIN_S = 1.0
"""How much longer than its own timeout a call may take before it counts as hanging."""
LOST_S = 1.0
"""How long the offsets may take once a connection was lost, at first; doubled by each that hung.

The client waits for a state change of the coordinator's connection, which a dead broker never makes
(librdkafka #5456, #5511), while a new producer looks the coordinator up. With 6 s for each such
call a killed broker cost 8 to 14 s in 5 of 8 cases, without it 3 to 6 s more than the election.
"""
_LOOK_S = 0.1


class HangingError(Exception):
    """The call did not return in time. Its thread is left to itself, and its client with it."""


class Caller:
    """Makes calls on a thread of its own; one that hangs costs the thread, not the process.

    The thread is a daemon: it may hang in the client and must not keep the process alive.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=_serve, args=(self._calls, self._answers), name="offsets", daemon=True
        )
        self._thread.start()

    def call(
        self,
        method: Callable[..., Any],
        *arguments: object,
        timeout_s: float,
        suspect: Callable[[], bool] = lambda: False,
        suspect_timeout_s: float = 0.0,
    ) -> None:
        """Call and wait; raise what it raises, or HangingError. After that use a new Caller.

        suspect  asked ten times a second while the call runs: once it is true, the call may take
                 another ``suspect_timeout_s`` and no more
        """
        self._calls.put(lambda: method(*arguments))
        began_s = time.monotonic()
        until_s, suspected = began_s + timeout_s, False
        while (left_s := until_s - time.monotonic()) > 0:
            with suppress(queue.Empty):
                error = self._answers.get(timeout=min(_LOOK_S, left_s))
                if error is not None:
                    raise error
                return
            if not suspected and suspect():
                suspected = True
                until_s = min(until_s, time.monotonic() + suspect_timeout_s)
        self.close()
        raise HangingError(f"no return after {time.monotonic() - began_s:.1f} s")

    def close(self) -> None:
        """Let the thread end after the call that it is in."""
        self._calls.put(None)


class OffsetsCaller:
    """Sends a transaction's offsets; a call that hangs leaves its thread to itself."""

    def __init__(self) -> None:
        self._caller: Caller | None = None
        self.hung = 0  # calls that did not return, since the last one that did

    def call(
        self,
        send: Callable[..., Any],
        *arguments: object,
        timeout_s: float,
        lost: Callable[[], bool],
    ) -> None:
        """Call and wait; raise what it raises, or HangingError.

        timeout_s  the last of the arguments, which the client may not keep
        lost       whether a connection was lost: the coordinator may be dead
        """
        self._caller = self._caller or Caller()
        hung, self.hung = self.hung, 0
        try:
            self._caller.call(
                send,
                *arguments,
                timeout_s,
                timeout_s=timeout_s + HANG_MARGIN_S,
                suspect=lost,
                suspect_timeout_s=LOST_S * 2.0**hung,
            )
        except HangingError:
            self._caller, self.hung = None, hung + 1
            raise

    def close(self) -> None:
        if self._caller is not None:
            self._caller.close()


def _serve(
    calls: queue.SimpleQueue[Callable[[], None] | None],
    answers: queue.SimpleQueue[BaseException | None],
) -> None:
    while (call := calls.get()) is not None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - passed to the thread that waits
            answers.put(error)
        else:
            answers.put(None)
