"""What ends step 4 before its last record: the service's own wish, or a person's or a kill."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.records import Record

SLICE_S: Final = 0.01
"""How late a pause hears that it is to end."""
_PROCESS: Final = os.getpid()


class KilledError(BaseException):
    """A kill, as simulations raise it in business code: nothing may stop it, as with a real one."""


class CtrlC(KeyboardInterrupt):
    """A person's, within a command: of business code it is another one."""


def raise_ctrl_c(_number: int, _frame: object) -> NoReturn:
    raise CtrlC


def is_from_outside(error: BaseException) -> bool:
    """Whether a person or a simulated kill ends the process, and not what business code raises.

    Commands have a handler of SIGINT that raises CtrlC, the service one that records, and
    processes that make calls none: there what business code raises is its own. Within Python's own
    handler, as in tests, the main thread's KeyboardInterrupt is taken for a person's.
    A child that business code has forked ends here where it exits: the clients are not its own.
    """
    if isinstance(error, SystemExit) and os.getpid() != _PROCESS:
        os._exit(error.code if isinstance(error.code, int) else bool(error.code))
    return isinstance(error, KilledError | CtrlC) or (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


@contextmanager
def without_ctrl_c() -> Iterator[None]:
    """Ignore SIGINT meanwhile: for processes to which no person speaks."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Interrupt:
    """Makes step 4 end early: what is transformed so far makes the batch.

    Set from a signal handler or the watchdog's thread, hence plain attributes.

    record    whose call is made: the watchdog counts the time of its attempt
    attempts  begun after the first ones; ``pausing``: between two of them
    long      the record whose call has taken so long that no further attempt may begin
    bytes     of the outputs so far; beyond ``bytes_max`` it is due
    """

    def __init__(self) -> None:
        self.due = self.pausing = False
        self.bytes, self.bytes_max = 0, 1 << 62
        self.record: Record | None = None
        self.long: Record | None = None
        self.attempts = 0

    def weigh(self, size: int) -> None:
        """Take note of how many bytes the outputs have by now."""
        self.bytes = size
        if size > self.bytes_max:
            self.due = True

    def again(self, pause_s: float) -> bool:
        """Pause before another attempt at the record; False: there is no time for one."""
        if self.long is not None and self.long is self.record:
            return False
        self.pausing = True
        self.pause(pause_s)
        self.attempts += 1
        self.pausing = False
        return True

    def pause(self, seconds: float) -> None:
        """Wait so long, or until step 4 is to end early."""
        until_s = time.monotonic() + seconds
        while not self.due and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, SLICE_S))
