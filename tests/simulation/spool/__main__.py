"""``python -m tests.simulation.spool [COUNT] [SEED]``: power losses; every other flips a bit."""

import sys
import time
from collections import Counter

from tests.simulation.spool.play import play


def main(count: int, seed: int) -> None:
    """Play them; the first that fails ends it, with its seed."""
    struck, began_s = Counter[str](), time.monotonic()
    for number in range(seed, seed + count):
        struck.update(play(number, flips=number % 2 == 1))
    said = ", ".join(f"{name} {times:,}" for name, times in sorted(struck.items()))
    print(f"{count:,} schedules in {time.monotonic() - began_s:.0f} s: {said}")  # noqa: T201


if __name__ == "__main__":
    main(*(int(word) for word in [*sys.argv[1:], *["1000", "1"][len(sys.argv) - 1 :]]))
