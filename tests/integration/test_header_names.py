"""Header names as other programs write them: kept, or a dead letter that says why."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.managed_process import WorkerProcess
from tests.kit.native import Raw, RawProducer
from tests.kit.pipeline_under_test import Done, PipelineUnderTest, header, values
from tests.kit.spark_process import SparkProcess

if TYPE_CHECKING:
    from hapax.core.records import Headers

LONG = "x" * 40_000
"""Longer than the 32,767 bytes of a short."""
KEPT: Headers = (
    ("twice", b"1"),
    ("", b"no name"),
    ("twice", None),
    ("twice", b""),
    ("naïve ☃", b"\x00\xff"),
    (LONG, b"long"),
    ("message-id", b"1"),
)
UNREADABLE = {
    b"NUL": ((b"message-id\0x", b"1"),),
    b"NUL, null": ((b"other", b"2"), (b"message-id\0", None)),
    b"NUL before its twin": ((b"a\0b", b"1"), (b"a", b"1")),
    b"NUL after its twin": ((b"a", None), (b"a\0b", None)),
    b"not UTF-8": ((b"\xff", b"1"),),
}
RECORDS = [
    Raw(b"k", b"kept", tuple((name.encode(), value) for name, value in KEPT)),
    *(Raw(b"k", name, headers) for name, headers in UNREADABLE.items()),
    Raw(b"k", b"last", ((b"message-id", b"2"),)),
]
NATIVE = pytest.mark.skipif(
    importlib.util.find_spec("hapax_fast") is None, reason="hapax_fast is not installed"
)
CUT = pytest.mark.xfail(
    strict=True,
    reason="confluent-kafka alone hands a name out up to its NUL: docs/ids.md says when",
)


FORMS: dict[str, tuple[type[WorkerProcess], dict[str, Any]]] = {
    "nothing called": (WorkerProcess, {"TRANSFORM": None}),
    "a function": (WorkerProcess, {}),
    "Spark": (SparkProcess, {}),
    "Python alone": (WorkerProcess, {"FAST": "off"}),
}


@pytest.fixture(scope="module")
def made(request, sandbox, tmp_path_factory):
    kind, settings = FORMS[request.param]
    folder = tmp_path_factory.mktemp("names")
    route = PipelineUnderTest(sandbox, folder, kind=kind, **settings)
    route.create()
    producer = RawProducer(route.bootstrap)
    producer.send(route.source, RECORDS)
    producer.close()
    yield Done(route, route.run_to_end())
    route.close()


def each(cut: pytest.MarkDecorator | tuple[()]) -> pytest.MarkDecorator:
    native = [pytest.param(form, marks=NATIVE) for form in list(FORMS)[:-1]]
    forms = [*native, pytest.param("Python alone", marks=cut)]
    return pytest.mark.parametrize("made", forms, indirect=True)


@each(cut=())
def test_names_that_are_text_leave_as_they_came_with_their_order_and_their_nulls(made):
    (kept, *_rest) = made.outputs_of(0)
    own = tuple(pair for pair in kept.headers if not pair[0].startswith("hapax-"))
    assert own == KEPT
    assert values(made.outputs_of(len(RECORDS) - 1)) == [b"last"]


@each(cut=CUT)
def test_a_name_that_cannot_be_read_whole_makes_a_dead_letter_and_no_other_id(made):
    dead = made.route.dead()
    assert values(dead) == list(UNREADABLE)
    for record in dead:
        assert "not UTF-8, or holds a NUL" in header(record, "hapax-error")
        assert [name for name, _ in record.headers if not name.startswith("hapax-")] == []
        assert header(record, "hapax-id") == header(record, "hapax-source")
    assert made.route.committed() == {0: len(RECORDS)}
