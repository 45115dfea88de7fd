"""How step 4 is made to end early, and what it is working on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hapax.core.records import Record


class Interrupt:
    """Makes step 4 end early: what is transformed so far makes the batch.

    Set from a signal handler or the watchdog's thread, hence plain attributes. ``record`` is the
    one in the hands of business code: the watchdog asks for how long it has been.
    """

    def __init__(self) -> None:
        self.due = False
        self.record: Record | None = None
