"""Step 4, transform: business code, and what its answers mean.

A function of one record is called here for one record at a time, in order; the other forms are
called through call_window.py, concurrently. The form is recognised by signature and annotation:

``def f(record)``                 one record; with HAPAX_CALL__CONCURRENCY above 1 on threads
``async def f(record)``           one record; calls overlap on an event loop
``def f(records: list[Record])``  a list of records; answers for each of them, in their order
``async def f(records: list[Record])``  both
``def f(record, state)``          one record, and the state of its key (state.py); of a list:
                              ``def f(records: list[Record], states: list[State])``

Each may also be the ``__call__`` of a class, which is made once and may have ``setup`` and
``teardown`` (plain or async), or what a context manager without parameters yields: what is opened
once is closed when the service drains.
"""

from __future__ import annotations

import importlib
import inspect
import re
import typing
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from types import GeneratorType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from hapax.core.errors import (
    ConfigurationError,
    OutputsTooLarge,
    Poison,
    PreflightError,
    RetryLater,
    SchemasUnavailableError,
    StateTypeError,
    StopError,
)
from hapax.core.headers import is_header, is_text
from hapax.core.interrupt import Interrupt, is_from_outside
from hapax.core.records import OUTPUT_BYTES, Output, Record, size_of
from hapax.core.results import Failure, Later, Undecided
from hapax.core.working_folder import import_own, shadowed_files
from hapax.processing.retry_later import OFF, Retrying, delay_of
from hapax.processing.state import Answered

if TYPE_CHECKING:
    from types import ModuleType

    from hapax.core.record_path import Batch, Preset, Results
    from hapax.core.results import Result

    Answer = Output | bytes | str
    Transform = Callable[[Record], Answer | Iterable[Answer] | None]

PARTITION_MAX, TIMESTAMP_MAX = 2**31 - 1, 2**63 - 1
"""What the client's C types hold."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
OUTPUT_BYTES_MAX = 128 << 20
"""Of one record. The process holds them until their transaction has ended."""
FINAL = (Poison, RetryLater, SchemasUnavailableError, StateTypeError)
"""After these a record is not called again at once."""
_FIELDS = ("struct_fields", "dataclass_fields", "attrs_attrs", "pydantic_fields")
_SEVERAL = {list, tuple, GeneratorType}
_LIST = re.compile(r"(\w+\.)*(list|List|Sequence)\b")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class DataWithoutFormat(Poison):
    """Data with fields was returned, and nothing says how it is written, nor any of its kind."""

    def __init__(self, data: object) -> None:
        super().__init__(
            f"HAPAX_OUTPUT__FORMAT is not set, and the transform returned a {type(data).__name__}:"
            " set it to json, avro, protobuf or json-schema, or return bytes"
        )


def identity(record: Record) -> Output:
    """Pass the record on as it is: the default transform."""
    return Output(record.value)


NOT_LATER = Retrying()
"""No record waits, and attempts follow each other without a pause."""


class Transformer:
    """Runs business code on records, one after the other, each with bounded attempts."""

    def __init__(
        self,
        function: Transform,
        attempts_max: int,
        retrying: Retrying = NOT_LATER,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
    ) -> None:
        self._function = function
        self._output_bytes_max = output_bytes_max
        self._attempts_max = attempts_max
        self._retrying = retrying
        self._interrupt = Interrupt()

    def apply_all(self, batch: Batch, interrupt: Interrupt, preset: Preset) -> Results:
        """Return the records' results in order; a prefix when the interrupt is due."""
        self._interrupt = interrupt
        function = None if self._function is identity else self._function
        return batch.apply(self._apply_each, function, self._judge, interrupt, preset)

    def _apply_each(
        self, records: Sequence[Record], interrupt: Interrupt, preset: Preset
    ) -> Results:
        results: list[Result | None] = []
        apply, called, size, size_max = self._apply, False, interrupt.bytes, interrupt.bytes_max
        for index, record in enumerate(records):
            if preset and index in preset:
                results.append(preset[index])
                continue
            if called and (interrupt.due or size > size_max):
                break
            interrupt.record, called = record, True
            result, more = apply(record)
            results.append(result)
            size += more
        interrupt.record = None
        interrupt.weigh(size)
        return results

    def apply(self, record: Record) -> Result:
        """Return the record's outputs, or what its last attempt ended in.

        All of a generator's outputs are collected before any counts, so a function that yields
        two outputs and then raises leaves nothing but its dead letter. The function sees a record
        that has waited as it first came.
        """
        return self._apply(record)[0]

    def _apply(self, record: Record) -> tuple[Result, int]:
        if self._retrying.topic is not None:
            record = self._retrying.topic.restored(record)
        try:
            return sized_outputs(self._function(record), self._output_bytes_max)
        except BaseException as error:  # noqa: BLE001 - whatever it raises, also SystemExit
            return self._again(record, error)

    def _judge(self, record: Record, answer: object, error: BaseException | None) -> Result:
        result, size = self._judged(record, answer) if error is None else self._again(record, error)
        self._interrupt.weigh(self._interrupt.bytes + size)
        return result

    def _judged(self, record: Record, answer: object) -> tuple[Result, int]:
        try:
            return sized_outputs(answer, self._output_bytes_max)
        except BaseException as error:  # noqa: BLE001 - as in apply
            return self._again(record, error)

    def _again(self, record: Record, error: BaseException) -> tuple[Result, int]:
        attempts, retrying = 1, self._retrying
        while attempts < self._attempts_max and not isinstance(error, FINAL):
            if is_from_outside(error) or not self._interrupt.again(retrying.pause_s(attempts)):
                break
            attempts += 1
            try:
                return sized_outputs(self._function(record), self._output_bytes_max)
            except BaseException as newer:  # noqa: BLE001 - as in apply
                error = newer
        return ended(error, attempts, retrying), 0


def ended(
    error: BaseException, attempts: int, retrying: Retrying, reason: str | None = None
) -> Failure | Later | Undecided:
    if is_from_outside(error):
        raise error
    if isinstance(error, SchemasUnavailableError):
        return Undecided(_text(error), error.key, error.refused)
    if isinstance(error, DataWithoutFormat | StateTypeError):
        return Undecided(_text(error), unset=True)
    if not isinstance(error, Exception) or not retrying.asks(error):
        text = f"{_text(error)}; {OFF}" if isinstance(error, RetryLater) else _text(error)
        return Failure(reason or type(error).__name__, text, attempts)
    try:
        after_ms = delay_of(error) if isinstance(error, RetryLater) else None
    except Poison as wrong:
        return Failure("Poison", _text(wrong), attempts)
    return Later(after_ms, reason or type(error).__name__, _text(error), attempts)


def error_of(result: Undecided) -> SchemasUnavailableError | StopError:
    if result.unset:
        return ConfigurationError(result.reason)
    if result.refused:
        return PreflightError(result.reason)
    return SchemasUnavailableError(result.reason, key=result.key)


def _text(error: BaseException) -> str:
    """Return text that logs, metrics and headers can hold: records bring lone surrogates in."""
    try:
        text = str(error)
        return text if is_text(text) else text.encode("utf-8", "backslashreplace").decode()
    except BaseException:  # noqa: BLE001 - an error whose text cannot be read is no reason to stop
        return "(its text cannot be shown)"


def sized_outputs(answer: object, bytes_max: int) -> tuple[tuple[Output, ...], int]:
    """Return what business code answered for a record, and its bytes; raise Poison when it is none.

    Bytes, and text in UTF-8, are outputs with that value; an exception counts as raised. A
    generator is asked for no more once its outputs are larger than ``bytes_max``. All but the first
    are counted with OUTPUT_BYTES more.
    """
    if answer is None:
        return (), 0
    if type(answer) is Output:
        outputs: tuple[Output, ...] = (answer,)
        size = 0
    elif type(answer) is Answered:
        outputs, size = sized_outputs(answer.answer, bytes_max)
        stated, more = answer.result(outputs)
        return stated, size + more
    else:
        outputs, size = _collected(answer, bytes_max)
    for output in outputs:
        value = output.value
        if value is not None and type(value) is not bytes:
            if _has_fields(value):
                raise DataWithoutFormat(value)
            raise Poison(f"Output.value must be bytes or None, not {type(value).__name__}")
        if (
            output.headers != ()
            or output.key is not UNSET
            or output.topic is not None
            or output.partition is not None
            or output.timestamp_ms is not None
        ):
            _check_rest(output)
        elif output is answer:  # the rule
            return outputs, len(value or b"")
    if len(outputs) == 1:
        size = size_of(outputs[0])
    return outputs, size


def _collected(answer: object, bytes_max: int) -> tuple[tuple[Output, ...], int]:
    if type(answer) not in _SEVERAL and (isinstance(answer, bytes | str) or _has_fields(answer)):
        return (_output(answer),), 0
    if isinstance(answer, BaseException):
        raise answer
    if not isinstance(answer, Iterable):
        raise Poison(f"a transform returns Output, several, or None, not {type(answer).__name__}")
    outputs: list[Output] = []
    size = 0
    for one in answer:
        output = one if type(one) is Output else _output(one)
        size += OUTPUT_BYTES
        with suppress(TypeError, ValueError):  # what is ill-formed is refused by sized_outputs
            size += size_of(output)
        if size > bytes_max:
            raise OutputsTooLarge(
                f"its outputs are larger than {bytes_max:,} bytes after {len(outputs):,} of them,"
                f" each counted with its bytes and {OUTPUT_BYTES} more: yield less for a record,"
                " or raise HAPAX_CALL__OUTPUT_BYTES_MAX"
            )
        outputs.append(output)
    return tuple(outputs), max(0, size - OUTPUT_BYTES)


def _has_fields(answer: object) -> bool:
    """Whether it is a dict, or of a class of msgspec, dataclasses, attrs, pydantic or Protobuf."""
    kind = type(answer)
    named = any(hasattr(kind, f"__{name}__") for name in _FIELDS) or hasattr(kind, "DESCRIPTOR")
    return (named or issubclass(kind, dict)) and not issubclass(kind, Output | Record | type)


def _output(answer: object) -> Output:
    if isinstance(answer, str):
        if not is_text(answer):
            raise Poison(f"text that a transform returns must fit UTF-8: {answer!r:.300}")
        answer = answer.encode()
    if not isinstance(answer, bytes):
        if _has_fields(answer):
            raise DataWithoutFormat(answer)
        raise Poison(f"a transform yields Output, not {type(answer).__name__}")
    return Output(bytes(answer))


def _check_rest(output: Output) -> None:
    if output.key is not UNSET and output.key is not None and type(output.key) is not bytes:
        raise Poison(f"Output.key must be bytes or None, not {type(output.key).__name__}")
    if output.topic is not None and type(output.topic) is not str:
        raise Poison(f"Output.topic must be str, not {type(output.topic).__name__}")
    if output.topic is not None and not is_topic(output.topic):
        raise Poison(f"Output.topic is not a valid topic name: {output.topic!r:.300}")
    if output.partition is not None and not is_number(output.partition, PARTITION_MAX):
        raise Poison(
            f"Output.partition must be a number from 0 to 2^31-1: {output.partition!r:.99}"
        )
    if output.timestamp_ms is not None and not is_number(output.timestamp_ms, TIMESTAMP_MAX):
        raise Poison(
            f"Output.timestamp_ms must be a number from 0 to 2^63-1: {output.timestamp_ms!r:.99}"
        )
    # An iterator would be used up by this check, and the headers would be lost silently.
    if not isinstance(output.headers, tuple | list):
        raise Poison(f"Output.headers must be a tuple, not {type(output.headers).__name__}")
    for pair in output.headers:
        if not is_header(pair):
            raise Poison(
                "Output.headers must be pairs of str, in UTF-8 and without NUL, and bytes or None:"
                f" {pair!r:.300}"
            )


def is_number(number: object, most: int) -> bool:
    return type(number) is int and 0 <= number <= most


@lru_cache(maxsize=256)
def is_topic(name: str) -> bool:
    """Whether Kafka allows the name, for what it does not allow the client may not survive."""
    return _TOPIC.fullmatch(name) is not None and name not in {".", ".."}


class SchemaWait:
    """Around calls: a record that waits for a schema holds up those after it."""

    def before(self, _records: Sequence[Record]) -> dict[int, Result | None]:
        return {}

    def after(
        self, records: Sequence[Record], results: list[Result | None], _preset: Collection[int]
    ) -> list[Result | None]:
        """Return the results before the first record that waits for a schema.

        Where that is the first of all, raise SchemasUnavailableError for its partition, or
        StopError where no waiting helps.
        """
        for index, result in enumerate(results):
            if isinstance(result, Undecided):
                if index:
                    return results[:index]
                error = error_of(result)
                if isinstance(error, SchemasUnavailableError):
                    error.where = records[0].topic, records[0].partition
                raise error
        return results


class TransformForm(msgspec.Struct, frozen=True):
    """How a transform is called.

    function      takes a record, or a list of records; of a ``context``: what makes the context
    asynchronous  its answer is awaited
    lists         it takes and returns lists
    setup, teardown  called once: before the first call, and after the last one
    annotation    of its parameter: ``data_type`` reads it
    context       ``function`` makes a context manager; what it yields is the transform, whose own
                  form is known when it has been entered
    stateful      it takes the state of the record's key as well; ``state_type``: of its values
    """

    function: Callable[..., Any]
    asynchronous: bool = False
    lists: bool = False
    setup: Callable[[], Any] | None = None
    teardown: Callable[[], Any] | None = None
    context: bool = False
    annotation: Any = None
    stateful: bool = False
    state_type: Any = Any

    @property
    def plain(self) -> bool:
        """Whether it is a function of one record, without anything to open or close."""
        return not (self.asynchronous or self.lists or self.context or self.setup or self.teardown)


def load_form(name: str | None) -> TransformForm:
    """Import ``package.module:name``; raise ConfigurationError saying what is wrong."""
    if name is None:
        return TransformForm(identity)
    setting = f'HAPAX_TRANSFORM="{name}"'
    module_name, _, attribute = name.partition(":")
    found = getattr(imported(setting, module_name), attribute, None)
    if found is None:
        raise ConfigurationError(f"{setting}: {module_name} has no {attribute}")
    if not callable(found):
        raise ConfigurationError(f"{setting}: {attribute} is not a function")
    try:
        return form_of(found)
    except ValueError as error:
        raise ConfigurationError(f"{setting}: {attribute} {error}") from error


def imported(setting: str, name: str) -> ModuleType:
    """Import a module of the user's; raise ConfigurationError, for that ``setting``."""
    try:
        import_own(name.partition(".")[0])
        return importlib.import_module(name)
    except BaseException as error:
        if is_from_outside(error):
            raise
        problem = f"{setting}: cannot import {name}: {type(error).__name__}: {error}"
        raise ConfigurationError([problem, *shadowed_files()]) from error


def form_of(named: Callable[..., Any]) -> TransformForm:
    """Return the form of a function, a class or a context manager; raise ValueError on others."""
    found: Any = named
    if inspect.isclass(named):
        try:
            found = named()
        except BaseException as error:
            if is_from_outside(error):
                raise
            raise ValueError(
                f"is a class that cannot be made without arguments: {type(error).__name__}: {error}"
            ) from error
    function: Any = found
    if not inspect.isroutine(found) and not isinstance(found, partial):
        if not callable(found):
            raise ValueError("has no __call__")
        function = found.__call__
    if inspect.isasyncgenfunction(function):
        raise ValueError("is an async function that yields: return a list of Outputs instead")
    annotation, *more = _parameters(function)
    if annotation is _NONE_TAKEN:
        return TransformForm(found, asynchronous=_yields(function, asynchronous=True), context=True)
    return TransformForm(
        found,
        asynchronous=inspect.iscoroutinefunction(function),
        lists=_is_list(annotation),
        setup=getattr(found, "setup", None),
        teardown=getattr(found, "teardown", None),
        annotation=annotation,
        stateful=bool(more),
        state_type=next((kind for state in more for kind in _kinds(state)), Any),
    )


def data_type(annotation: Any) -> Any:
    """Return what ``Record[…]`` names; Any: nothing. ValueError: no such name at run time."""
    if isinstance(annotation, str):
        if "Record[" in annotation:
            raise ValueError(
                f"takes {annotation}, which cannot be looked up: import its names outside of"
                " TYPE_CHECKING, so that the data can be made of that type"
            )
        return Any
    if _is_list(annotation):
        (annotation,) = typing.get_args(annotation) or (None,)
    found = typing.get_args(annotation)
    return found[0] if found else Any


_NONE_TAKEN: Any = object()


def _parameters(function: Callable[..., Any]) -> list[Any]:
    try:
        given = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [None]  # written in C, without a signature: it is called with one record
    needed = [one for one in given if one.default is one.empty and one.kind in _POSITIONAL]
    named = [one for one in given if one.default is one.empty and one.kind is one.KEYWORD_ONLY]
    places = [one for one in given if one.kind in {*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL}]
    if not given and (_yields(function) or _yields(function, asynchronous=True)):
        return [_NONE_TAKEN]
    taken = needed or places[:1]
    try:
        hints = typing.get_type_hints(function)
    except (AttributeError, NameError, SyntaxError, TypeError):
        hints = {}  # names that are imported for type checkers alone
    found = [hints.get(one.name, one.annotation) for one in taken]
    name = "states" if _is_list(next(iter(found), None)) else "state"
    state = [one for one in given if one.name == name]
    if taken[2:] or named or not taken or taken[1:] != state:
        raise ValueError(
            f"takes {inspect.signature(function)}: a transform takes one record, or one"
            " list[Record]; with state (record, state), or (records: list[Record], states),"
            " without a default"
        )
    return [*found[:1], *(_looked_up(one, function) for one in found[1:])]


def _kinds(annotation: Any) -> tuple[Any, ...]:
    found = typing.get_args(annotation)
    return typing.get_args(found[0]) if found and _is_list(annotation) else found


def _looked_up(annotation: Any, function: Callable[..., Any]) -> Any:
    """Return the type of a state; raise ValueError when its name cannot be looked up."""
    if not isinstance(annotation, str):
        return annotation
    inner = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        alone: Any = SimpleNamespace(__annotations__={"state": annotation})
        return typing.get_type_hints(alone, inner)["state"]
    except (AttributeError, NameError, SyntaxError, TypeError) as error:
        raise ValueError(
            f"takes state as {annotation}, which cannot be looked up ({error}): import its names"
            " outside of TYPE_CHECKING, so that values can be made of that type"
        ) from error


def _yields(function: Callable[..., Any], *, asynchronous: bool = False) -> bool:
    """Whether it is made by ``@contextmanager`` or ``@asynccontextmanager``."""
    inner = inspect.unwrap(function)
    if inner is function:
        return False
    return inspect.isasyncgenfunction(inner) if asynchronous else inspect.isgeneratorfunction(inner)


def _is_list(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return _LIST.match(annotation.strip(" '\"")) is not None
    return (typing.get_origin(annotation) or annotation) in {list, Sequence}
