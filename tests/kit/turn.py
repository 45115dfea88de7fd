"""Whose turn it is: which share of what rotates a commit plays, so that N in a row play all of it.

``python tests/kit/turn.py`` prints the turn of this commit, for recipes; TURN=7 says another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Sequence

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


if __name__ == "__main__":
    sys.stdout.write(f"{turn()}\n")
