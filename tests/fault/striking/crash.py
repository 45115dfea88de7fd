"""The service, dying at a named point: ``python -m tests.fault.striking.crash POINT run``.

Adapters and core are the real ones; one call is wrapped so that the process ends in front of it,
behind it or inside it, without a word, the n-th time (``CRASH_NTH``, 1 unless set) that it is made.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from hapax.claims.redis import RedisClaims, Request
from hapax.kafka.produce.transaction import KafkaTransaction

EXIT = 86
"""What it leaves with, like no exit code of the service."""
INSIDE_S = 0.001
"""How long EndTxn has been under way: it is answered within 0.5 to 10 ms."""


class Point(NamedTuple):
    """Which call, and where about it."""

    owner: type
    call: str
    place: str


POINTS = {
    "before-claim": Point(RedisClaims, "ask", "before"),
    "after-claim": Point(Request, "answer", "after"),
    "before-send": Point(KafkaTransaction, "send", "before"),
    "after-send": Point(KafkaTransaction, "send", "after"),
    "before-offsets": Point(KafkaTransaction, "send_offsets", "before"),
    "after-offsets": Point(KafkaTransaction, "send_offsets", "after"),
    "during-commit": Point(KafkaTransaction, "commit", "inside"),
    "after-commit": Point(KafkaTransaction, "commit", "after"),
}


def arm(point: Point, nth: int) -> None:
    call: Callable[..., Any] = getattr(point.owner, point.call)
    made = 0

    def dying(*arguments: Any, **more: Any) -> Any:
        nonlocal made
        made += 1
        if made < nth:
            return call(*arguments, **more)
        if point.place == "before":
            _die()
        if point.place == "inside":
            threading.Thread(target=_die, args=(INSIDE_S,), daemon=True).start()
        answer = call(*arguments, **more)
        _die()
        return answer

    setattr(point.owner, point.call, dying)


def _die(after_s: float = 0.0) -> None:
    time.sleep(after_s)
    os._exit(EXIT)


def main() -> None:
    """Arm the point that the first argument names, and be the service with the others."""
    arm(POINTS[sys.argv.pop(1)], int(os.environ.get("CRASH_NTH", "1")))
    from hapax.__main__ import main as service  # noqa: PLC0415 - it reads the arguments

    service()


if __name__ == "__main__":
    main()
