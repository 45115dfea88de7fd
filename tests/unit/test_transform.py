"""Step 4: what the answers of business code mean."""

import dataclasses
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from typing import Any
from unittest.mock import Mock

import msgspec
import pydantic
import pytest
from google.protobuf import timestamp_pb2

from hapax.core.errors import ConfigurationError, Poison
from hapax.core.interrupt import CtrlC, Interrupt, KilledError, raise_ctrl_c
from hapax.core.record_path import Batch
from hapax.core.records import OUTPUT_BYTES, Output, Record
from hapax.core.results import Failure, Undecided
from hapax.engines.overlapping_calls import GatheredCalls, open_transformer
from hapax.processing.call_window import CallLimits
from hapax.processing.transform import Transformer, error_of, form_of, identity, load_form
from tests.kit.impossible import IMPOSSIBLE, order
from tests.kit.leaving import DEEDS, function as leaving

RECORD = Record("in", 0, 0, b"k", b"v")


def apply(function: Callable[[Record], Any], attempts_max: int = 1) -> Any:
    return Transformer(function, attempts_max).apply(RECORD)


def answering(answer: object) -> Any:
    return apply(lambda _record: answer)


@pytest.mark.parametrize(
    "answer", [None, [], (), [Output(b"1")], (Output(b"1"), Output(None)), {Output(b"1"): 1}.keys()]
)
def test_an_iterable_means_its_outputs_in_order_and_none_means_filtered(answer):
    assert answering(answer) == tuple(answer or ())


@pytest.mark.parametrize("answer", [Output("é".encode()), "é".encode(), "é"])
def test_an_output_bytes_or_text_in_utf_8_is_what_leaves(answer):
    assert answering(answer) == answering([answer]) == (Output(b"\xc3\xa9"),)


class Priced(msgspec.Struct):
    total: int = 1


Ordered = dataclasses.make_dataclass("Ordered", ["total"])
Listed = pydantic.create_model("Listed", total=(int, 1))  # which can be iterated over
DATA: list[Any] = [{"a": 1}, Priced(), Ordered(1), Listed(), timestamp_pb2.Timestamp()]


@pytest.mark.parametrize("form", [lambda data: data, lambda data: [data], Output])
@pytest.mark.parametrize("data", DATA, ids=lambda data: type(data).__name__)
def test_data_without_a_format_of_outputs_is_no_record_s_failure_but_a_missing_setting(form, data):
    function = Mock(return_value=form(data))
    result = apply(function, attempts_max=3)
    assert isinstance(result, Undecided)
    assert isinstance(error := error_of(result), ConfigurationError)
    said = "HAPAX_OUTPUT__FORMAT is not set, and the transform returned a"
    assert str(error).startswith(f"{said} {type(data).__name__}: set")
    function.assert_called_once_with(RECORD)


def test_a_generator_is_read_to_its_end():
    def both(record: Record) -> Iterator[Output]:
        yield Output(record.value)
        yield Output(record.key)

    assert apply(both) == (Output(b"v"), Output(b"k"))


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_that_a_function_forks_ends_where_it_exits():
    def forks(_record: Record) -> bytes:
        if (child := os.fork()) == 0:
            sys.exit(3)
        return b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert apply(forks) == (Output(b"3"),)


@pytest.mark.parametrize("form", ["alone", "one of a list", "on an event loop", "in threads"])
@pytest.mark.parametrize(
    "yielded", [Output(b"x" * 100), b"x" * 100, Output(None, key=b"k" * 98, headers=(("h", b"x"),))]
)
def test_a_generator_of_too_many_outputs_is_asked_for_no_more_and_is_a_failure(form, yielded):
    asked = []

    def many(_given: object) -> Iterator[object]:
        for number in range(100):
            asked.append(number)
            yield yielded

    def listed(records: list[Record]) -> list[object]:
        return [many(records[0])]

    async def awaited(record: Record) -> object:
        return many(record)

    forms: dict[str, Any] = {"one of a list": listed, "on an event loop": awaited}
    limits = CallLimits(1 + (form == "in threads"), output_bytes_max=10 * (OUTPUT_BYTES + 100))
    transformer = open_transformer(form_of(forms.get(form, many)), limits)
    with closing(transformer) if isinstance(transformer, GatheredCalls) else nullcontext():
        (result,) = transformer.apply_all(Batch([RECORD]), Interrupt(), {})
    assert isinstance(result, Failure)
    assert (result.reason, result.attempts) == ("OutputsTooLarge", 1)
    assert "HAPAX_CALL__OUTPUT_BYTES_MAX" in result.text
    assert len(asked) == 11


LARGE = {
    "one large": Output(b"x" * 1000),
    "large headers": Output(b"", headers=(("h", b"x" * 999),)),
    "many small": [Output(b"")] * 3,
}


@pytest.mark.parametrize("shape", LARGE)
@pytest.mark.parametrize("form", ["alone", "on an event loop", "in threads"])
def test_a_batch_ends_with_the_record_with_which_its_outputs_exceed_its_bound(form, shape):
    async def awaited(_record: Record) -> object:
        return LARGE[shape]

    function = awaited if form == "on an event loop" else lambda _record: LARGE[shape]
    transformer = open_transformer(form_of(function), CallLimits(1 + (form == "in threads")))
    interrupt = Interrupt()
    interrupt.bytes_max = 5000
    with closing(transformer) if isinstance(transformer, GatheredCalls) else nullcontext():
        results = transformer.apply_all(Batch([RECORD] * 100), interrupt, {3: None})
        assert interrupt.bytes > 5000
        if form == "alone":
            assert len(results) == (4 if shape == "many small" else 7)
            assert len(transformer.apply_all(Batch([RECORD] * 3), interrupt, {0: None})) == 2
        else:
            assert 4 <= len(results) < 50  # in calls that had begun


def test_a_generator_that_yields_two_and_then_raises_leaves_only_a_failure():
    def breaking(_record: Record) -> Iterator[Output]:
        yield Output(b"1")
        yield Output(b"2")
        raise RuntimeError("third")

    assert apply(breaking) == Failure("RuntimeError", "third", 1)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (7, "not int"),
        (Output, "not StructMeta"),
        ("\ud800", "must fit UTF-8"),
        (bytearray(b"v"), "yields Output, not int"),
        ([Output(b"1"), None], "yields Output, not NoneType"),
        (Output("v"), "Output.value must be bytes or None, not str"),
        (Output(bytearray(b"v")), "Output.value must be bytes or None, not bytearray"),
        (Output(b"", key="k"), "Output.key must be bytes or None, not str"),  # type: ignore[arg-type]
        (Output(b"", topic=7), "Output.topic must be str, not int"),  # type: ignore[arg-type]
        (Output(b"", partition=-1), "Output.partition must be a number from 0 to"),
        (Output(b"", partition=True), "Output.partition must be a number from 0 to 2^31-1: True"),
        (Output(b"", partition="1"), "Output.partition must be a number from 0"),  # type: ignore[arg-type]
        (Output(b"", headers=(("a", "b"),)), "Output.headers must be pairs"),  # type: ignore[arg-type]
        (Output(b"", headers=((b"a", b"b"),)), "Output.headers must be pairs"),  # type: ignore[arg-type]
        (Output(b"", headers={"a": b"b"}), "Output.headers must be a tuple"),  # type: ignore[arg-type]
        (Output(b"", headers=(("a", b"b", b"c"),)), "Output.headers must be pairs"),  # type: ignore[arg-type]
    ],
)
def test_an_answer_of_a_wrong_type_is_poison_that_says_what_is_wrong(answer, text):
    failure = answering(answer)
    assert isinstance(failure, Failure)
    assert failure.reason == "Poison"
    assert text in failure.text


def test_an_exception_that_is_returned_counts_as_one_that_is_raised():
    assert answering(ValueError("no price")) == Failure("ValueError", "no price", 1)


def test_all_that_an_output_may_say_is_accepted():
    output = Output(
        None, key=b"k", topic="t", headers=(("a", None), ("b", b"1")), timestamp_ms=5, partition=3
    )
    assert answering(output) == (output,)
    assert answering(Output(b"", key=None)) == (Output(b"", key=None),)


def failing(times: int, calls: list[Record], error: Exception) -> Callable[[Record], Output]:
    def function(record: Record) -> Output:
        calls.append(record)
        if len(calls) <= times:
            raise error
        return Output(b"ok")

    return function


def test_attempts_are_bounded_and_success_on_the_last_one_counts():
    calls: list[Record] = []
    assert apply(failing(2, calls, OSError("no")), attempts_max=3) == (Output(b"ok"),)
    assert len(calls) == 3


@pytest.mark.parametrize(("error", "attempts"), [(OSError("no"), 3), (Poison("never"), 1)])
def test_a_failure_tells_how_many_attempts_there_were_and_poison_is_not_tried_again(
    error, attempts
):
    calls: list[Record] = []
    failure = apply(failing(9, calls, error), attempts_max=3)
    assert failure == Failure(type(error).__name__, str(error), attempts)
    assert len(calls) == attempts


def test_poison_on_a_later_attempt_ends_the_attempts():
    errors = [OSError("once"), Poison("never"), OSError("not reached")]

    def function(_record: Record) -> Output:
        raise errors.pop(0)

    assert apply(function, attempts_max=3) == Failure("Poison", "never", 2)


def test_an_exception_that_cannot_even_tell_its_text_is_poison_too():
    class Mute(Exception):  # noqa: N818 - stands for a foreign class
        def __str__(self) -> str:
            raise RuntimeError("mute")

    assert apply(failing(9, [], Mute())).reason == "Mute"


def test_a_simulated_kill_is_not_poison():
    def function(_record: Record) -> Output:
        raise KilledError

    with pytest.raises(KilledError):
        apply(function)


def test_without_a_transform_records_pass_as_they_are():
    assert load_form(None).function is identity
    assert apply(identity) == (Output(b"v"),)


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "rules", raising=False)

    def write(text: str) -> None:
        (tmp_path / "rules.py").write_text(text)

    return write


def test_a_transform_is_found_by_its_name(module):
    module("def go(record): return None")
    assert load_form("rules:go").function(RECORD) is None
    sys.modules.pop("rules")


@pytest.mark.parametrize(
    ("text", "name", "problem"),
    [
        ("", "no_such_module:go", "cannot import no_such_module: ModuleNotFoundError"),
        ("import no_such_library", "rules:go", "cannot import rules: ModuleNotFoundError"),
        ("1 / 0", "rules:go", "cannot import rules: ZeroDivisionError: division by zero"),
        ("def (", "rules:go", "cannot import rules: SyntaxError"),
        ("", "rules:go", "rules has no go"),
        ("", "rules", "rules has no "),
        ("", ":go", "cannot import"),
        ("go = 7", "rules:go", "go is not a function"),
        ("async def go(record): yield 1", "rules:go", "is an async function that yields"),
    ],
)
def test_a_transform_that_cannot_be_loaded_says_why(module, text, name, problem):
    module(text)
    with pytest.raises(ConfigurationError) as caught:
        load_form(name)
    sys.modules.pop("rules", None)
    assert f'HAPAX_TRANSFORM="{name}": ' in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_output_that_no_client_can_send_is_a_failure_of_its_record_alone(name):
    result = Transformer(order, 3).apply(Record("in", 0, 5, b"k", b"v", data={"do": name}))
    assert isinstance(result, Failure)
    assert IMPOSSIBLE[name][1] in result.text
    result.text.encode()  # what goes into logs, metrics and headers


@pytest.mark.parametrize(
    "given",
    [
        {"headers": (("naïve ☃", b"1"), ("", None))},
        {"topic": "a" * 249, "partition": 2**31 - 1, "timestamp_ms": 2**63 - 1},
        {"topic": "A.b_c-9", "partition": 0, "timestamp_ms": 0},
    ],
)
def test_the_largest_and_oddest_that_a_client_can_send_passes(given):
    output = Output(b"v", **given)
    assert answering(output) == (output,)


def test_an_error_with_a_lone_surrogate_can_be_written_down():
    def function(_record: Record) -> Output:
        raise ValueError("\ud800")

    result = apply(function)
    assert isinstance(result, Failure)
    assert result.text == "\\ud800"


@pytest.mark.parametrize("value", DEEDS)
def test_what_is_no_exception_fails_its_record_where_the_process_hears_signals_itself(
    value, monkeypatch
):
    monkeypatch.setattr(signal, "getsignal", lambda _number: signal.SIG_IGN)
    result = Transformer(leaving, 2).apply(Record("in", 0, 0, None, value))
    assert isinstance(result, Failure)
    assert (result.reason, result.attempts) == (type(DEEDS[value]()).__name__, 2)


@pytest.fixture
def listening():
    """Python's own handler of SIGINT, which a process in the background has not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listening")
def test_ctrl_c_ends_a_command_or_a_test_that_calls_business_code():
    calls = []

    def function(record: Record) -> Output:
        calls.append(record)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply(function, attempts_max=3)
    assert len(calls) == 1
    signal.signal(signal.SIGINT, raise_ctrl_c)  # as commands have it
    assert apply(function) == Failure("KeyboardInterrupt", "", 1)
    with pytest.raises(CtrlC):
        apply(lambda _record: os.kill(os.getpid(), signal.SIGINT))


def test_an_error_whose_text_asks_to_leave_is_a_failure_without_a_text():
    class UnspeakableError(Exception):
        def __str__(self) -> str:
            return str(sys.exit(0))

    def function(_record: Record) -> Output:
        raise UnspeakableError

    assert apply(function) == Failure("UnspeakableError", "(its text cannot be shown)", 1)
