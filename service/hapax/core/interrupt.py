"""How step 4 is made to end early, what it is working on, and who else wants it to end."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.records import Record


SLICE_S: Final = 0.01
"""How late a pause hears that it is to end."""


class KilledError(BaseException):
    """A kill, as simulations raise it in business code: nothing may stop it, as with a real one."""


def is_from_outside(error: BaseException) -> bool:
    """Whether a person or a simulated kill ends the process, and not what business code raises.

    Only Python's own handler of SIGINT raises, in the main thread: the service has one that
    records, and processes that make calls have none, so that there only business code does.
    """
    return isinstance(error, KilledError) or (
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

    Set from a signal handler or the watchdog's thread, hence plain attributes. ``record`` is the
    one in the hands of business code: the watchdog asks for how long it has been.
    """

    def __init__(self) -> None:
        self.due = False
        self.record: Record | None = None

    def pause(self, seconds: float) -> None:
        """Wait so long, or until step 4 is to end early."""
        until_s = time.monotonic() + seconds
        while not self.due and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, SLICE_S))
