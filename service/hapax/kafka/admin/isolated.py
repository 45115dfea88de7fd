"""Questions that may cost the process that asks them."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")
TRIES = 2


class CrashedError(Exception):
    """Each process that was to answer has died."""


def run_in_subprocess(look: Callable[[], Answer]) -> Answer:
    """Return what ``look`` finds in a process of its own; if that dies, in another one.

    The client's admin calls end their process when a broker dies while they wait (``Assertion
    `eonce->refcnt > 0' failed``; librdkafka #3663, #4605). ``look`` and its answer are pickled, so
    is what it raises. Raises CrashedError after two deaths. Starting a process takes 0.3 s.
    """
    for _try in range(TRIES):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            try:
                return pool.submit(look).result()
            except BrokenProcessPool:
                continue
    raise CrashedError(f"the Kafka client has crashed {TRIES} times, as it may while brokers die")
