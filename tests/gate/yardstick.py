"""How much slower the machine is just now than the one on which the budgets were measured.

A processor second is no fixed amount of work: on a machine that shares its cores with others the
same type check took 32 s of processor time in one hour and 59 s in the next. A fixed piece of work,
timed again and again while the tests run, tells a slow hour from a slow change.
"""

import json
import time

_REFERENCE_S = 0.054
"""Processor time of the work on the machine of the budgets, where mypy takes 42 s of its 60."""
_STEPS = 60_000


def slowness() -> float:
    """Return how many times as long the work takes here and now; below 1 where it is faster."""
    began = time.thread_time()
    _work()
    return (time.thread_time() - began) / _REFERENCE_S


def _work() -> None:
    """Do what tests do: objects, text, dictionaries, JSON."""
    kept: dict[int, tuple[int, str]] = {}
    for number in range(_STEPS):
        kept[number % 997] = (number, str(number))
        sum(each for each in (number, number + 1, number + 2))
    json.loads(json.dumps([{"number": number, "text": text} for number, text in kept.values()]))
