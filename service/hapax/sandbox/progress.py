"""What is shown during a long wait: a bar on a terminal, plain lines elsewhere.

Always on standard error, so that standard output stays what was asked for.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LINES_PER_COUNT = 5


def say(sentence: str) -> None:
    """Write one line."""
    Console(stderr=True, highlight=False).print(sentence, soft_wrap=True, markup=False)


@contextmanager
def counted(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Give a function to call once for each of ``total`` things done."""
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            task = progress.add_task(what, total=total)
            yield lambda: progress.advance(task)
    else:
        yield _lines(what, total)


def _lines(what: str, total: int) -> Callable[[], None]:
    done = 0
    step = -(-total // _LINES_PER_COUNT)

    def advance() -> None:
        nonlocal done
        done += 1
        if done % step == 0 or done == total:
            say(f"{what}: {done} of {total}")

    return advance
