"""hapax.context: what business code logs and counts is of its own record, in every form."""

import io
import json
import sys

import pytest
from prometheus_client import generate_latest

from hapax import Record, context
from hapax.core.errors import ConfigurationError
from hapax.engines.isolated_calls import IsolatedCalls
from hapax.engines.overlapping_calls import bound
from hapax.processing.call_window import CallLimits
from hapax.processing.crash_markers import Death
from hapax.processing.transform import form_of
from hapax.settings.secrets import Strike
from hapax.telemetry.logs import Troubles, configure_logs, relay
from hapax.telemetry.metrics import Metrics
from hapax.testing import Pipeline
from tests.kit import noting


@pytest.fixture(autouse=True)
def _nothing_counted():
    yield
    context.drained()


@pytest.fixture
def log():
    class Stream(io.StringIO):
        buffer = io.BytesIO()

    stream, troubles = Stream(), Troubles()
    stream.buffer = io.BytesIO()
    strike = Strike({"hunter2-secret"})
    names = {"app": "shop", "instance": "w-0"}
    configure_logs("info", "json", stream=stream, troubles=troubles, strike=strike, **names)  # type: ignore[arg-type]
    return lambda: [json.loads(line) for line in stream.buffer.getvalue().splitlines()], troubles


def belongs(line):
    return line["mine"] == f"{line['topic']}/{line['partition']}/{line['offset']}"


@pytest.mark.parametrize(
    ("form", "concurrency", "notes"),
    [("function", 1, 1), ("function", 8, 1), ("coroutine", 8, 1), ("generator", 1, 2),
     ("generator", 8, 2), ("alone", 1, 1), ("listed", 1, 2)],
)  # fmt: skip
def test_each_form_logs_and_counts_for_the_record_at_hand(form, concurrency, notes):
    settings = {"HAPAX_CALL__CONCURRENCY": str(concurrency), "HAPAX_CALL__ORDER": "none"}
    if form == "alone":
        settings["HAPAX_CALL__RECORDS_MAX"] = "1"
    with Pipeline(getattr(noting, form), settings) as pipeline:
        done = pipeline.run(*[b"x"] * 40)
        assert pipeline.run().logged == []
    whole = [line for line in done.logged if line["event"] == "listed"]
    lines = [line for line in done.logged if line not in whole]
    assert len(lines) == 40 * notes
    assert all(map(belongs, lines))
    assert {line["offset"] for line in lines} == set(range(40))
    assert {(line["app"], line["instance"], line["level"]) for line in lines} == {
        ("test", "test-0", "warning")
    }
    named = "generator" if form == "listed" else form
    assert done.counted == {
        f'noted_calls_total{{form="{named}"}}': 40 * notes,
        "noted_seconds_count": 40 * notes,
        "noted_seconds_sum": 20 * notes,
    }
    assert [(line["records"], line["first"]) for line in whole] == [(40, "input/0/0")] * (
        form == "listed"
    )


def test_a_repeated_call_counts_again_and_an_aborted_transaction_repeats_none():
    calls = context.counter("tried")

    def fails(record: Record) -> bytes:
        calls.inc()
        raise ValueError(context.instance)

    pipeline = Pipeline(fails, {"HAPAX_RETRY__ATTEMPTS": "3"})
    pipeline.abort_next()
    done = pipeline.run(b"x")
    assert done.counted == {"tried_total": 3}
    assert done.dead_letters[0].error.endswith("test-0")


def test_outside_of_a_call_lines_have_app_and_instance_alone(log):
    lines, _ = log
    context.log.info("before", topic="mine")
    assert [{*line} for line in lines()] == [
        {"timestamp", "level", "event", "message", "app", "instance", "topic"}
    ]
    assert context.instance == "w-0"


def test_lines_of_business_code_hide_secrets_and_are_not_on_the_status_page(log):
    lines, troubles = log
    context.log.error("hunter2-secret", of=["hunter2-secret"])
    assert "hunter2" not in str(lines())
    assert troubles.latest() == []


def test_the_registry_that_is_scraped_has_the_metrics_of_business_code():
    same = context.counter("same_total")
    assert context.counter("same") is same
    same.inc(2)
    context.histogram("size", labels=["of"], buckets=[1, 10]).labels("a").observe(5)
    scraped = generate_latest(Metrics().registry).decode()
    assert "\nsame_total 2.0\n" in scraped
    assert 'size_bucket{le="10.0",of="a"} 1.0' in scraped


def test_labels_beyond_the_limit_are_counted_as_other():
    many = context.counter("many", labels=("who", "why"))
    for number in range(context.SERIES_MAX + 50):
        many.labels(why=f"\udc80{number}", who="x" * 1000).inc()
        many.labels("x" * 1000, f"\udc80{number}").inc()
    counted = context.counted()
    assert len(counted) == context.SERIES_MAX + 1
    assert counted['many_total{who="other",why="other"}'] == 100
    generate_latest(context.REGISTRY)


@pytest.mark.parametrize(
    ("name", "labels", "why"),
    [("hapax_orders", (), "begin with hapax_"), ("process_x", (), "begin"), ("a b", (), "letters"),
     ("ok", ("a-b",), "letters"), ("noted_calls", (), "is a Counter already"),
     ("noted_seconds", ("x",), "is a Histogram already")],
)  # fmt: skip
def test_names_that_are_not_free_are_refused(name, labels, why):
    with pytest.raises(ValueError, match=why):
        context.counter(name, labels=labels)


def test_there_is_an_end_to_metrics(monkeypatch):
    monkeypatch.setattr(context, "METRICS_MAX", 0)
    with pytest.raises(ValueError, match="use labels"):
        context.counter("one_more")


def test_without_the_import_the_function_is_called_as_it_is(monkeypatch):
    form = form_of(noting.function)
    assert bound(form, CallLimits()).function is not form.function
    monkeypatch.delitem(sys.modules, "hapax.context")
    assert bound(form, CallLimits()) is form


def test_what_the_process_for_suspects_logs_and_counts_is_here_also_when_it_dies(log):
    lines, _ = log
    function, limits = "tests.kit.noting:function", CallLimits()
    calls = IsolatedCalls(function, limits, 20.0, 60.0, app="shop", instance="w-0")
    context.drained()
    calls.call([Record("in", 0, 7, None, b"x"), Record("in", 0, 8, None, b"x")])
    assert context.counted()['noted_calls_total{form="function"}'] == 2
    with pytest.raises(Death, match="SIGSEGV"):
        calls.call([Record("in", 0, 9, None, b"segfault")])
    imported, *noted = lines()
    assert (imported["event"], imported["instance"]) == ("imported", "w-0")
    assert [line["offset"] for line in noted] == [7, 8, 9]
    assert all(map(belongs, noted))


@pytest.mark.parametrize("line", ["x", "[1]", "{}", '{"level":"info","event":"x","instance":"w"}'])
def test_what_others_print_is_no_line_of_business_code(log, line):
    assert not relay(line)


def test_a_metric_that_is_refused_at_import_ends_the_start(tmp_path, monkeypatch):
    (tmp_path / "wrong.py").write_text("from hapax import context\ncontext.counter('hapax_x')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match="only the service's metrics begin with hapax_"):
        Pipeline(settings={"HAPAX_TRANSFORM": "wrong:f"})
