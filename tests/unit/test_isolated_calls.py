"""Calls in a process of their own: whatever ends it, ours goes on and says how it ended."""

import io
import os
import signal
import socket
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hapax.core.errors import ConfigurationError
from hapax.core.headers import Retried
from hapax.core.interrupt import Interrupt
from hapax.core.records import Output, Record
from hapax.core.results import Failure, Later
from hapax.engines import isolated_calls
from hapax.engines.isolated_calls import IsolatedCalls, memory_left, receive, send
from hapax.kafka.produce import transaction
from hapax.kafka.produce.transaction import LOST_S, Caller, HangingError, OffsetsCaller
from hapax.operations.doctor.examination import TRIES, CrashedError, run_in_subprocess
from hapax.processing.call_window import CallLimits
from hapax.processing.crash_markers import KILLS_MAX, Death, Isolation, IsolationError
from hapax.processing.retry_later import Retrying, RetryTopic
from hapax.processing.transform import Transformer
from tests.kit.killers import obey
from tests.kit.leaving import DEEDS

LIMIT_S = 20.0


@pytest.fixture
def calls():
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
    ("deed", "how"), [(b"segfault", "SIGSEGV"), (b"killed", "SIGKILL"), (b"exit", "exit code 3")]
)
def test_a_death_is_told_and_the_next_record_has_another_process(calls, deed, how):
    with pytest.raises(Death, match=how) as death:
        calls.call([record(deed)])
    assert not death.value.hung
    assert calls.call([record(b"fine")]) == [(Output(b"fine"),)]


@pytest.mark.parametrize("deed", [b"hang", b"spin"])
def test_a_call_that_does_not_return_is_ended(deed):
    calls = IsolatedCalls("tests.kit.killers:obey", CallLimits(), 0.3)
    with pytest.raises(Death, match=r"did not return within 0\.3 s") as death:
        calls.call([record(deed)])
    assert death.value.hung
    calls.close()


@pytest.mark.parametrize("form", ["obey", "coroutine"])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_attempts_and_pauses_are_no_one_call_in_another_process_either(form, concurrency):
    limits = CallLimits(concurrency=concurrency, timeout_s=1.6, retrying=Retrying(backoff_ms=900))
    calls = IsolatedCalls(f"tests.kit.killers:{form}", limits, 1.6)  # an attempt takes 0.4 s
    answers = calls.call([record(b"away")] * concurrency)
    assert answers == [Failure("ConnectionError", "away", 3)] * concurrency
    calls.close()


@pytest.mark.parametrize("kills", [KILLS_MAX - 1, KILLS_MAX])
def test_a_process_killed_from_outside_condemns_its_record_only_when_it_always_is(calls, kills):
    found: list[Record] = []
    apart = Isolation(
        Transformer(obey, 3), calls, on_death=lambda one, *_: found.append(one), on_failure=print
    )
    apart.suspect(("in", 0), 9, 1)
    made, left = calls.call, [None] * kills

    def killing(records: list[Record]) -> Any:
        if left:
            left.pop()
            made([record(b"fine")])
            os.kill(calls._process.pid, signal.SIGKILL)
        return made(records)

    calls.call = killing
    (answer,) = apart.call([record(b"slow")], Interrupt())
    assert len(found) == (kills == KILLS_MAX)
    assert answer == (Output(b"slow"),) or cast("Failure", answer).reason == "Killed"


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


def test_loading_the_transform_has_the_time_of_a_batch_and_says_so(monkeypatch):
    monkeypatch.setattr(isolated_calls, "LOAD_S", 0.001)  # no start is so short
    calls = IsolatedCalls("tests.kit.killers:obey", CallLimits(), 0.001, LIMIT_S)
    assert calls.call([record(b"fine")]) == [(Output(b"fine"),)]
    calls.close()
    late = IsolatedCalls("tests.kit.killers:obey", CallLimits(), 0.001, 0.001)
    with pytest.raises(IsolationError, match=r"within 0\.001 s .*MAX_POLL_INTERVAL"):
        late.call([record(b"fine")])


def test_closed_it_leaves_no_process(calls):
    calls.call([record(b"fine")])
    process = calls._process
    assert process is not None
    calls.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


# -- Calls that may never return wait on a thread of their own ----------------------------


def test_a_call_has_its_arguments_and_what_it_raises_is_raised_and_the_next_one_works():
    caller, seen = Caller(), []
    caller.call(lambda *arguments: seen.append(arguments), 1, "two", timeout_s=10)
    assert seen == [(1, "two")]
    with pytest.raises(ValueError, match="no"):
        caller.call(int, "no", timeout_s=10)
    caller.call(int, "1", timeout_s=10)
    caller.close()


def test_a_call_that_hangs_is_left_behind_and_its_late_answer_reaches_nobody():
    gate, left = threading.Event(), threading.Event()

    def hang() -> None:
        gate.wait()
        left.set()

    caller = Caller()
    with pytest.raises(HangingError, match="no return"):
        caller.call(hang, timeout_s=0.01)
    gate.set()
    assert left.wait(10)
    caller._thread.join(10)
    assert not caller._thread.is_alive()


def test_a_call_under_suspicion_has_less_time_and_one_without_has_all():
    gate = threading.Event()
    caller = Caller()
    with pytest.raises(HangingError, match="no return after 0"):
        caller.call(gate.wait, timeout_s=60, suspect=lambda: True, suspect_timeout_s=0.05)
    gate.set()
    caller = Caller()
    caller.call(gate.wait, timeout_s=60, suspect=lambda: True)
    caller.close()


def test_each_time_that_offsets_hang_they_have_longer_and_after_a_return_no_more(monkeypatch):
    given: list[float] = []

    class Hanging:
        hangs = True

        def call(self, *_arguments: object, suspect_timeout_s: float, **_named: object) -> None:
            given.append(suspect_timeout_s)
            if self.hangs:
                raise HangingError("no return")

    monkeypatch.setattr(transaction, "Caller", Hanging)
    offsets = OffsetsCaller()
    for _ in range(3):
        with pytest.raises(HangingError):
            offsets.call(print, timeout_s=60.0, lost=lambda: False)
    Hanging.hangs = False
    for _ in range(2):
        offsets.call(print, timeout_s=60.0, lost=lambda: False)
    assert given == [LOST_S, 2 * LOST_S, 4 * LOST_S, 8 * LOST_S, LOST_S]


def test_a_message_that_comes_in_pieces_is_read_whole_and_nothing_of_the_next_one():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for content in (b"one", b"seven"):
            send(ours, content)
        arrived = io.BytesIO(theirs.recv(1000))
    pieces: Any = SimpleNamespace(recv=lambda most: arrived.read(min(most, 3)))
    assert [receive(pieces) for _ in range(2)] == [b"one", b"seven"]
    with pytest.raises(EOFError):
        receive(pieces)


# -- What is asked in a process of its own ------------------------------------------------


def crash(marks: Path, times: int) -> int:
    """Die as the client does, so many times; then return who answers."""
    before = len(list(marks.iterdir()))
    if before < times:
        (marks / str(before)).touch()
        os.abort()
    return os.getpid()


def refuse() -> None:
    raise ConfigurationError(["one", "another"])


@pytest.mark.parametrize("times", [0, 1])
def test_a_process_that_dies_is_replaced_and_the_one_that_asks_lives_on(tmp_path, times):
    assert run_in_subprocess(partial(crash, tmp_path, times)) != os.getpid()
    assert len(list(tmp_path.iterdir())) == times


def test_a_question_that_costs_each_process_is_given_up(tmp_path):
    with pytest.raises(CrashedError, match="crashed 2 times"):
        run_in_subprocess(partial(crash, tmp_path, 99))
    assert len(list(tmp_path.iterdir())) == TRIES


def test_a_refusal_comes_back_with_each_of_its_problems():
    with pytest.raises(ConfigurationError) as raised:
        run_in_subprocess(refuse)
    assert raised.value.problems == ["one", "another"]


@pytest.mark.parametrize("value", DEEDS)
def test_what_is_no_exception_fails_its_record_and_not_the_other_process(value):
    calls = IsolatedCalls("tests.kit.leaving:function", CallLimits(attempts_max=1), LIMIT_S)
    (failure,) = calls.call([record(value)])
    assert isinstance(failure, Failure)
    assert failure.reason == type(DEEDS[value]()).__name__
    calls.close()
