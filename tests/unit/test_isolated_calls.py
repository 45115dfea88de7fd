"""Calls in a process of their own: whatever ends it, ours goes on and says how it ended."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from hapax.core.calls import CallLimits
from hapax.core.headers import Retried
from hapax.core.isolation import Death, IsolationError
from hapax.core.records import Output, Record
from hapax.core.retry_later import Later, Retrying, RetryTopic
from hapax.core.transform import Failure
from hapax.engines.isolated_calls import IsolatedCalls
from hapax.engines.isolated_process import memory_left

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_S = 20.0


@pytest.fixture
def calls() -> Iterator[IsolatedCalls]:
    made = IsolatedCalls("tests.kit.killers:obey", CallLimits(), LIMIT_S)
    yield made
    made.close()


def record(value: bytes) -> Record:
    return Record("in", 0, 7, None, value)


def test_a_record_that_does_no_harm_has_its_outputs(calls):
    assert calls.call([record(b"fine")]) == [(Output(b"fine"),)]
    assert calls.call([record(b"raise")]) == [Failure("ValueError", "raise", 3)]


def test_a_later_try_is_asked_for_by_the_other_process_as_by_ours():
    policy = Retrying(topic=RetryTopic("again", frozenset({"in"})), later=("ValueError",))
    calls = IsolatedCalls("tests.kit.killers:obey", CallLimits(retrying=policy), LIMIT_S)
    assert calls.call([record(b"raise")]) == [Later(None, "ValueError", "raise", 3)]
    waited = Retried(of="in/3/9", timestamp=5, attempt=1, calls=1, move=1, until=1, due=1)
    again = Record("again", 0, 1, None, b"fine", tuple(waited.encode()))
    assert calls.call([again]) == [(Output(b"fine"),)]
    calls.close()


@pytest.mark.parametrize(
    ("deed", "how"),
    [(b"segfault", "SIGSEGV"), (b"killed", "SIGKILL"), (b"exit", "exit code 3")],
)
def test_a_death_is_told_and_the_next_record_has_another_process(calls, deed, how):
    with pytest.raises(Death, match=how) as death:
        calls.call([record(deed)])
    assert not death.value.hung
    assert calls.call([record(b"fine")]) == [(Output(b"fine"),)]


@pytest.mark.parametrize("deed", [b"hang", b"spin"])
def test_a_call_that_does_not_return_is_ended(deed):
    calls = IsolatedCalls("tests.kit.killers:obey", CallLimits(), 2.0)
    began_s = time.monotonic()
    with pytest.raises(Death, match="did not return within 2 s") as death:
        calls.call([record(deed)])
    assert death.value.hung
    assert time.monotonic() - began_s < LIMIT_S
    calls.close()


def test_a_record_for_which_memory_does_not_suffice_ends_alone(calls):
    left = memory_left()
    assert left is not None
    assert left > 1 << 20
    (answer,) = calls.call([record(b"memory")])
    assert isinstance(answer, Failure)
    assert (answer.reason, "memory" in answer.text) == ("OSError", True)


def test_a_transform_that_cannot_be_loaded_is_no_death():
    with pytest.raises(IsolationError, match="exit code"):
        IsolatedCalls("tests.kit.nowhere:f", CallLimits(), LIMIT_S).call([record(b"fine")])


def test_closed_it_leaves_no_process(calls):
    calls.call([record(b"fine")])
    process = calls._process
    assert process is not None
    calls.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
