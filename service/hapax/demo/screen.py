"""What is shown while the demo runs: a live line on a terminal, plain lines elsewhere.

Always on standard error, so that standard output holds the result and nothing else.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from rich.console import Console

if TYPE_CHECKING:
    from types import TracebackType

_PLAIN_INTERVAL_S = 5.0


class DemoScreen:
    """Shows one phase at a time, with figures that move, and what has happened above it."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._exits = ExitStack()
        self._began_s = time.monotonic()
        self._told_s = self._began_s
        self._phase = ""
        self._status = self._console.status("") if self._console.is_terminal else None

    def __enter__(self) -> Self:
        if self._status is not None:
            self._exits.enter_context(self._status)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Make room for the result."""
        self._exits.close()

    def phase(self, text: str) -> None:
        """Show what happens from now on."""
        self._phase = text
        if self._status is None:
            self.note(text)
        else:
            self._status.update(text)

    def note(self, text: str) -> None:
        """Show what has happened; the line stays."""
        self._print(f"{time.monotonic() - self._began_s:5.1f} s  {text}")

    def figures(self, text: str) -> None:
        """Show figures that will soon be others."""
        if self._status is not None:
            self._status.update(f"{self._phase}\n  {text}")
        elif time.monotonic() - self._told_s > _PLAIN_INTERVAL_S:
            self._told_s = time.monotonic()
            self.note(text)

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)
