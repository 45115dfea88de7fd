"""A box of time for work that rotates: what is not begun before it is over is owed, by name.

What FIRST names is played first, so that what one run owes the next one pays.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")


@dataclass
class Box:
    """Opened when it is made.

    minutes  0: it has no end
    at_least fewer than so many played are a failure
    owed     file for what was not begun, a name a line; ``first`` one of what comes first
    left     names of what was not begun
    """

    minutes: float = 0.0
    at_least: int = 0
    owed: Path | None = None
    first: Path | None = None
    left: list[str] = field(default_factory=list)
    played: int = 0
    began_s: float = field(default_factory=time.monotonic)

    @staticmethod
    def arguments(parser: argparse.ArgumentParser) -> None:
        """Add what the command line says of a box."""
        parser.add_argument("--minutes", type=float, default=0.0, help="nothing begins later")
        parser.add_argument("--at-least", type=int, default=0, help="fewer played: a failure")
        parser.add_argument("--owed", type=Path, help="file for the names of what was not begun")
        parser.add_argument("--first", type=Path, help="file with names of what is played first")

    @classmethod
    def of(cls, asked: argparse.Namespace) -> Box:
        return cls(asked.minutes, asked.at_least, asked.owed, asked.first)

    def order(
        self, chosen: Sequence[T], every: Sequence[T], name: Callable[[T], str], turn: int
    ) -> list[T]:
        """Return what is owed of everything, then what was chosen.

        In a box the turn says where that begins: no part of it is always the last.
        """
        named = self.first.read_text().splitlines() if self.first and self.first.exists() else []
        known = {name(item): item for item in every}
        owed = [known[each] for each in dict.fromkeys(named) if each in known]
        rest = [item for item in chosen if name(item) not in named]
        at = random.Random(turn).randrange(len(rest)) if self.minutes and rest else 0
        return [*owed, *rest[at:], *rest[:at]]

    def fill(self, items: Iterator[T], name: Callable[[T], str]) -> Iterator[T]:
        """Yield items until it is over; the others are owed."""
        for item in items:
            if self.minutes and time.monotonic() - self.began_s > 60 * self.minutes:
                self.left += [name(each) for each in (item, *items)]
                return
            self.played += 1
            yield item

    def close(self) -> bool:
        """Say what is owed; return whether enough was played."""
        lines = "".join(f"{name}\n" for name in self.left)
        if self.owed:
            self.owed.parent.mkdir(parents=True, exist_ok=True)
            self.owed.write_text(lines)
        sys.stdout.write("".join(f"owed: {name}\n" for name in self.left))
        if self.played < self.at_least:
            sys.stdout.write(f"*** played {self.played}, at least {self.at_least} must be\n")
        return self.played >= self.at_least
