"""The form of a transform is told by its signature; whatever has none says why."""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Callable,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from functools import partial, wraps
from typing import Any

import pytest

from hapax.core.formats import FormatOptions
from hapax.core.records import Output, Record
from hapax.core.transform import TransformForm, form_of


def plain(record: Record) -> Output:
    return Output(record.value)


def yielding(record: Record) -> Iterator[Output]:
    yield Output(record.value)


def defaulted(record: Record, suffix: bytes = b"!") -> Output:
    return Output((record.value or b"") + suffix)


async def waiting(record: Record) -> Output:
    return Output(record.value)


def listed(records: list[Record]) -> list[Output]:
    return [Output(record.value) for record in records]


def sequenced(records: Sequence[Record]) -> list[Output]:
    return [Output(record.value) for record in records]


def unresolved(records: "list[NoSuchName]") -> list[Output]:  # type: ignore[name-defined] # noqa: F821, UP037
    return [Output(None) for _ in records]


async def waiting_for_lists(records: list[Record]) -> list[Output]:
    return [Output(record.value) for record in records]


class Enriched:
    def setup(self) -> None: ...

    async def __call__(self, record: Record) -> Output:
        return Output(record.value)

    async def teardown(self) -> None: ...


@contextmanager
def opened() -> Iterator[Callable[[Record], Output]]:
    yield plain


@asynccontextmanager
async def opened_later() -> AsyncIterator[Callable[[Record], Any]]:
    yield waiting


def traced(function: Callable[[Record], Any]) -> Callable[[Record], Any]:
    @wraps(function)
    def around(record: Record) -> Any:
        return function(record)

    return around


@pytest.mark.parametrize(
    ("found", "asynchronous", "lists", "context"),
    [
        (plain, False, False, False),
        (yielding, False, False, False),
        (traced(yielding), False, False, False),
        (defaulted, False, False, False),
        (partial(defaulted, suffix=b"?"), False, False, False),
        (len, False, False, False),
        (waiting, True, False, False),
        (listed, False, True, False),
        (sequenced, False, True, False),
        (unresolved, False, True, False),
        (waiting_for_lists, True, True, False),
        (Enriched, True, False, False),
        (Enriched(), True, False, False),
        (opened, False, False, True),
        (opened_later, True, False, True),
    ],
)
def test_a_form_is_told_by_its_signature(found, *, asynchronous, lists, context):
    form = form_of(found)
    assert (form.asynchronous, form.lists, form.context) == (asynchronous, lists, context)
    assert form.plain == (not (asynchronous or lists or context))


def test_what_a_class_opens_and_closes_belongs_to_its_form():
    form = form_of(Enriched)
    assert isinstance(form.function, Enriched)
    assert form.setup == form.function.setup
    assert form.teardown == form.function.teardown
    assert not TransformForm(plain, setup=form.setup).plain


class NeedsArguments:
    def __init__(self, url: str) -> None: ...

    def __call__(self, record: Record) -> None: ...


class NotCallable: ...


async def streaming(record: Record) -> AsyncIterator[Output]:
    yield Output(record.value)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (lambda: None, "a transform takes one record"),
        (lambda _one, _two: None, "a transform takes one record"),
        (lambda *, record: record, "a transform takes one record"),
        (streaming, "return a list of Outputs instead"),
        (NeedsArguments, "cannot be made without arguments"),
        (NotCallable, "has no __call__"),
    ],
)
def test_a_function_of_another_shape_says_what_is_wrong(found, why):
    with pytest.raises(ValueError, match=why):
        form_of(found)


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ({}, True),
        ({"input": "json"}, False),
        ({"output": "json"}, False),
        ({"input": "json", "output": "json"}, False),
    ],
)
def test_values_stay_bytes_only_where_both_sides_say_so(given, plain):
    assert FormatOptions(**given).plain is plain
