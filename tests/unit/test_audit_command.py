import json
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner

from hapax.commands.audit import figures, sentences
from hapax.commands.screen import point_ms
from hapax.commands.tree import app
from hapax.core.errors import ConfigurationError, HapaxError, PreflightError
from hapax.engines.spark.jvm import cause
from hapax.operations.audit import topics as wiring
from hapax.operations.audit.result import Audit, InputBounds, InputFindings, total
from hapax.operations.audit.topics import STRETCH_MAX, STRETCH_MIN, cut
from tests.kit.commands import invoked
from tests.unit.test_settings import REQUIRED

RUN = CliRunner()


def found(**counts: int) -> Audit:
    bounds = InputBounds(topic="in", partition=0, low=0, start=0, until=9, committed=9, end=10)
    inputs = [InputFindings(bounds=bounds, counts={"records": 9, **counts})]
    return Audit(
        app="a",
        compare="values",
        inputs=inputs,
        outputs=[],
        totals=total(inputs, {"orphaned": counts.get("nowhere", 0)}),
        examples={name: ["in/0/3"] for name in counts},
        remarks=["this and that"],
    )


@pytest.fixture
def answers(monkeypatch):
    def set_(answer: Any) -> None:
        def audit(*_arguments: object) -> Audit:
            if isinstance(answer, Exception):
                raise answer
            assert isinstance(answer, Audit)
            return answer

        monkeypatch.setattr(wiring, "audit", audit)

    return set_


def test_records_without_an_effect_and_nothing_to_judge_are_not_praised():
    audit = found()
    audit.totals["unexplained"] = 4
    first = sentences(audit)[0]
    assert "each with its effect once" not in first
    assert "9 records judged; 4 of them have no effect" in first
    audit = found()
    audit.totals["records"] = 0
    assert sentences(audit)[0].startswith("Nothing to judge")


def test_what_belongs_to_no_partition_counts_in_the_total():
    audit = found(nowhere=2)
    assert audit.anomalies == {"orphaned": 2}
    assert figures(audit)["clean"] is False


def test_a_clean_audit_leaves_with_0_and_an_anomaly_with_1_and_names_class_and_place(answers):
    answers(found())
    done = invoked(app, ["audit"], env=REQUIRED)
    assert "Kept: 9 records judged" in done.stdout
    assert "Remark: this and that." in done.stdout
    answers(found(missing=2, torn=1))
    done = invoked(app, ["audit"], env=REQUIRED, code=1)
    assert "BROKEN: 2 missing, 1 torn; 9 records judged." in done.stdout
    assert "  in/0/3" in done.stdout


def test_json_holds_everything(answers):
    answers(found(doubled=2))
    done = RUN.invoke(app, ["audit", "--json"], env=REQUIRED)
    told = json.loads(done.stdout)
    assert told["clean"] is False
    assert told["anomalies"] == {"doubled": 2}
    assert told["inputs"][0]["counts"] == {"records": 9, "doubled": 2}
    assert told["inputs"][0]["bounds"]["committed"] == 9


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PreflightError(["no broker answered"]), 3),
        (ConfigurationError(["no such transform"]), 2),
        (HapaxError("3 of 4 stretches"), 3),
    ],
)
def test_what_stands_in_the_way_is_one_sentence_and_a_code_that_is_no_verdict(answers, error, code):
    answers(error)
    done = RUN.invoke(app, ["audit"], env=REQUIRED)
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.splitlines()[-1] == f"hapax audit: {error}"


def test_brokers_that_do_not_answer_leave_with_3(monkeypatch):
    monkeypatch.setattr("hapax.kafka.read.offsets_client.BROKERS_TIMEOUT_S", 0.3)
    env = {**REQUIRED, "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    done = invoked(app, ["audit"], env=env, code=3)
    assert "no broker answered at HAPAX_KAFKA__BOOTSTRAP_SERVERS=127.0.0.1:1" in done.stderr


def test_of_a_task_that_failed_the_line_that_says_why_is_told():
    trace = """Job aborted due to stage failure: Traceback (most recent call last):
  File "x.py", line 3, in read
    raise OrderError(text)
           ^^^^^^^
{}
\tat org.apache.spark.Error"""
    for why in ("shop.errors.OrderError: no price", "OutOfStock: e7", "SystemExit: 3", "EOFError"):
        assert cause(RuntimeError(trace.format(why))) == why
    assert cause(RuntimeError("\n first\nsecond")) == "first"
    assert cause(RuntimeError()) == "RuntimeError"


def test_times_are_ages_or_points():
    now_ms = datetime.now(UTC).timestamp() * 1000
    assert now_ms - 3_700_000 < point_ms("--since", "1h") < now_ms - 3_500_000
    assert point_ms("--since", "2030-01-31T12:00:00Z") == 1_896_091_200_000
    assert point_ms("--since", "2030-01-31T12:00:00+01:00") == 1_896_087_600_000


@pytest.mark.parametrize(("end", "size"), [(10, STRETCH_MIN), (10**9, STRETCH_MAX)])
def test_stretches_cover_every_offset_once_and_are_neither_small_nor_large(end, size):
    spans = [("a", 0, 3, end), ("a", 1, 7, 7), ("b", 0, 0, 2 * end)]
    cuts = cut(spans, cores=2)
    assert max(one.end - one.start for one in cuts) <= size
    for place, (topic, partition, start, stop) in enumerate(spans):
        mine = [one for one in cuts if one.place == place]
        assert all((one.topic, one.partition) == (topic, partition) for one in mine)
        edges = [start, *(one.end for one in mine)] if mine else [start]
        assert [one.start for one in mine] == edges[:-1]
        assert edges[-1] == stop
