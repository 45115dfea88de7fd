"""Waiting: for a condition, and for brokers that may just be away."""

import time
from collections.abc import Callable

from confluent_kafka import KafkaException
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

INTERVAL_S = 0.05
PATIENCE_S = 60.0
WORDS_MAX = 4000
"""Of a log that explains a failure: its end, so that the failure itself can still be found."""


def reaches(condition: Callable[[], object], within_s: float) -> bool:
    deadline_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(INTERVAL_S)
    return True


def await_(
    condition: Callable[[], object],
    timeout_s: float = PATIENCE_S,
    what: Callable[[], str] = lambda: "it never came",
) -> None:
    """Wait until a condition holds; AssertionError with the end of ``what`` if it does not."""
    assert reaches(condition, timeout_s), f"not within {timeout_s} s: {what()[-WORDS_MAX:]}"


patient = retry(
    retry=retry_if_exception_type(KafkaException),
    wait=wait_fixed(0.1),
    stop=stop_after_delay(PATIENCE_S),
    reraise=True,
)
"""Repeats the call, with whatever client the function creates, until a broker answers.

For functions that only read. The client flags none of these errors as retriable: while brokers
die and come back it reports connections, coordinators, leaders, and a handle of its own that was
destroyed (``_DESTROY_BROKER``, of the broker whose disk was full).
"""
