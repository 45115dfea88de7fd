"""Whose turn it is: which share of what rotates a commit plays, so that N in a row play all of it.

Shares are of names, of seeds, and of boxes of time: what a box does not reach is owed, by name, and
what FIRST names is played first, so that what one run owes the next one pays.
``python tests/kit/turn.py`` prints the turn of this commit, for recipes; TURN=7 says another.
"""

import argparse
import os
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar
from zlib import crc32

T = TypeVar("T")
ROOT = Path(__file__).parents[2]


def turn() -> int:
    """Return TURN where it is set, else the turn of the commit that is checked out."""
    return int(os.environ.get("TURN") or of_commit(ROOT))


@cache
def of_commit(repository: Path) -> int:
    """Return how many commits there are, one more at each commit of a branch.

    Only first parents count: a merge of ten commits is one turn, not eleven. A shallow clone does
    not know how many there are. Its turns come from the hash: any share is as likely as another.
    """
    if _git(repository, "rev-parse", "--is-shallow-repository") == "false":
        return int(_git(repository, "rev-list", "--count", "--first-parent", "HEAD") or 0)
    return int(_git(repository, "rev-parse", "--short=8", "HEAD") or "0", 16)


def share(items: Sequence[T], n: int, turn: int) -> list[T]:
    """Return one in ``n`` of the items, as many each turn; ``n`` turns in a row return each once.

    Of fewer than ``n`` items each turn has one.
    """
    n = min(n, max(1, len(items)))
    return list(items[turn % n :: n])


def is_in_share(name: str, n: int, turn: int) -> bool:
    """Return whether this turn plays what is named so: ``share`` of a list that grows meanwhile.

    What is added moves nothing else to another turn; shares are then only about the same size.
    """
    return crc32(name.encode()) % n == turn % n


def _git(repository: Path, *words: str) -> str:
    command = ("git", "-C", str(repository), *words)
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git: what is not a repository has no turns either
        return ""


def of_this_turn(few: int, many: int) -> range:
    """Return ``few`` seeds that no other turn has; with DEEP=1 ``many``."""
    count = many if os.environ.get("DEEP") == "1" else few
    return range(count * (turn := int(os.environ.get("TURN") or 0)), count * (turn + 1))


def first(known: int, others: Iterable[int], shows: Callable[[int], object]) -> int | None:
    """Return the first seed that shows a mutant: the one that is noted, else one of the others.

    The warning (``another seed``) asks to note the seed that was found by the search.
    """
    if shows(known):
        return known
    for seed in others:
        if shows(seed):
            warnings.warn(f"another seed shows it by now, {seed} instead of {known}", stacklevel=2)
            return seed
    return None


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
    def of(cls, asked: argparse.Namespace) -> "Box":
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
        lines = "".join(f"{name}\n" for name in self.left)
        if self.owed:
            self.owed.parent.mkdir(parents=True, exist_ok=True)
            self.owed.write_text(lines)
        sys.stdout.write("".join(f"owed: {name}\n" for name in self.left))
        if self.played < self.at_least:
            sys.stdout.write(f"*** played {self.played}, at least {self.at_least} must be\n")
        return self.played >= self.at_least


if __name__ == "__main__":
    sys.stdout.write(f"{turn()}\n")
