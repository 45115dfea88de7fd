"""What a worker finds out about the logs around it, on a real broker, and shows."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from hapax.cluster.lag import Retention
from hapax.cluster.partition_offsets import LogOffsets
from hapax.kafka.admin import topics
from hapax.kafka.admin.topics import GroupMembers
from hapax.kafka.read.lag_probe import KafkaLagProbe
from hapax.settings import Settings, load_settings
from tests.kit.claim_stores import redis_server
from tests.kit.pipeline_under_test import PipelineUnderTest, metric
from tests.kit.probes import ask, free_port
from tests.kit.proof import at_length
from tests.kit.topics import Given, produce_aborted, produce_committed, produce_open
from tests.kit.waiting import await_

HOUR_S = 3_600
KEPT_S = 6_000


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def route(route_of, port):
    kept = {"retention.ms": str(KEPT_S * 1000), "message.timestamp.type": "CreateTime"}
    settings = {"TELEMETRY__PORT": str(port), "TELEMETRY__LAG_INTERVAL": "1s"}
    return route_of(config={"source": kept}, **settings)


def an_hour_old(value: bytes, *headers: tuple[str, bytes | None]) -> Given:
    return Given(
        value, partition=0, headers=headers, timestamp_ms=int((time.time() - HOUR_S) * 1000)
    )


def gauge(port: int, name: str, holds: Callable[[float], bool]) -> bool:
    """Return whether a gauge is there and holds; a worker that starts answers nothing yet."""
    try:
        exposition = ask(port, "/metrics")[1]
    except OSError:
        return False
    return f"\nhapax_{name}{{" in exposition and holds(metric(exposition, f"hapax_{name}"))


def status(port: int) -> dict[str, Any]:
    return dict(json.loads(ask(port, "/status.json")[1]))


# -- the questions ------------------------------------------------------------------------


def probe(route: PipelineUnderTest) -> KafkaLagProbe:
    return KafkaLagProbe({"bootstrap.servers": route.bootstrap}, [route.target], logger=None)


def test_a_survey_tells_marks_age_and_retention(route):
    route.write(b"new", an_hour_old(b"old"), b"new")
    survey = probe(route).probe({(route.source, 0): 1})
    assert survey.failures == []
    assert survey.offsets == {
        (route.source, 0): LogOffsets(0, 3, 3),
        (route.target, 0): LogOffsets(0, 0, 0),
    }
    assert survey.retention == {route.source: Retention(KEPT_S * 1000, None)}


def test_the_age_is_that_of_the_next_unread_record(route):
    route.write(an_hour_old(b"old"), b"new")
    asker = probe(route)
    survey = asker.probe({(route.source, 0): 0})
    assert survey.at_s - survey.unread_s[(route.source, 0)] == pytest.approx(HOUR_S, rel=0.05)
    survey = asker.probe({(route.source, 0): 1})
    assert survey.at_s - survey.unread_s[(route.source, 0)] < 600


def test_stable_ends_stand_before_an_open_transaction_and_behind_what_was_aborted(route):
    produce_aborted(route.bootstrap, route.source, Given(b"never", partition=0))
    with produce_open(route.bootstrap, route.source, Given(b"open", partition=0)) as producer:
        asker = probe(route)
        assert asker.probe({}).offsets.keys() == {(route.target, 0)}
        source = (route.source, 0)
        assert asker.probe({source: 2}).offsets[source] == LogOffsets(0, 2, 3)
        producer.commit_transaction(30)
    await_(
        lambda: asker.probe({source: 2}).offsets.get(source) == LogOffsets(0, 4, 4),
        30,
        lambda: "the marker does not come",
    )


def test_no_broker_is_an_answer_within_seconds():
    asker = KafkaLagProbe({"bootstrap.servers": "127.0.0.1:1"}, ["out"], logger=None)
    began_s = time.monotonic()
    survey = asker.probe({("in", 0): 0})
    assert survey.offsets == {}
    assert survey.failures
    assert time.monotonic() - began_s < 30


def test_the_group_is_asked_without_waiting_and_not_by_each_reader(monkeypatch):
    asked: list[Settings] = []
    answer = threading.Event()

    def describe(settings: Settings) -> list[object]:
        asked.append(settings)
        answer.wait(30)
        return []

    monkeypatch.setattr(topics, "_described", describe)
    members = GroupMembers(
        load_settings(
            {
                "HAPAX_APP": "nobody",
                "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
                "HAPAX_INPUT__TOPICS": "in",
                "HAPAX_OUTPUT__TOPIC": "out",
            }
        )
    )
    assert [members.latest() for _ in range(50)] == [None] * 50, "it has waited for the answer"
    answer.set()
    await_(lambda: members.latest() is not None)
    assert len(asked) == 1


# -- the worker ---------------------------------------------------------------------------


def test_a_transaction_of_somebody_that_stays_open_is_seen_until_it_is_over(route, port):
    produce_committed(route.bootstrap, route.source, Given(b"1", partition=0))
    worker = route.worker()
    with produce_open(route.bootstrap, route.source, Given(b"2", partition=0)) as producer:
        await_(lambda: gauge(port, "open_transaction_seconds", lambda s: s > 1), 60, worker.text)
        assert gauge(port, "last_stable_offset_lag", lambda records: records == 1)
        (row,) = status(port)["partitions"]
        assert row["high_watermark"] == row["last_stable"] + row["last_stable_offset_lag"]
        producer.commit_transaction(30)
    await_(lambda: gauge(port, "open_transaction_seconds", lambda s: s == 0), 60, worker.text)
    await_(lambda: gauge(port, "consumer_lag_seconds", lambda s: s == 0), 60, worker.text)
    assert gauge(port, "retention_margin_seconds", lambda s: s == float("inf"))


def test_while_partitions_are_held_records_grow_old_and_retention_comes_nearer(
    route, port, tmp_path
):
    with redis_server(tmp_path / "redis") as server:
        worker = route.worker(DEDUP__REDIS_URL=server.url)
        await_(lambda: gauge(port, "consumer_lag_seconds", lambda s: s == 0), 60, worker.text)
        server.kill()
        route.write(an_hour_old(b"old", ("message-id", b"a")))
        await_(lambda: gauge(port, "consumer_lag_seconds", lambda s: s > 3_500), 60, worker.text)
        margin_s = KEPT_S - HOUR_S
        await_(
            lambda: gauge(
                port, "retention_margin_seconds", lambda s: margin_s - 300 < s < margin_s + 60
            ),
            60,
            worker.text,
        )
        await_(lambda: status(port)["state"] == "paused", 60, worker.text)
        risk = f"retention deletes unread records of {route.source}/0 in "
        assert any(risk in one["reason"] for one in status(port)["causes"])
        assert not any(risk in one for one in status(port)["reasons"])
        await_(lambda: gauge(port, "consumer_lag", lambda records: records == 1), 60, worker.text)
        server.start()
        server.await_ready()
        await_(lambda: gauge(port, "consumer_lag_seconds", lambda s: s == 0), 60, worker.text)
    assert [record.value for record in route.outputs()] == [b"old"]


def test_the_page_shows_a_worker_as_it_is(route, port):
    route.write(b"1", b"2")
    worker = route.worker()
    await_(
        lambda: gauge(port, "last_stable_offset_lag", lambda records: records == 0), 60, worker.text
    )
    route.await_lag_0()
    await_(lambda: [row.get("lag") for row in status(port)["partitions"]] == [0], 60, worker.text)
    told = status(port)
    assert (told["state"], told["totals"]["records_in"]) == ("running", 2)
    assert {row["topic"] for row in told["outputs"]} == {route.target, route.dead_letters}
    assert told["settings"]["HAPAX_OUTPUT__TOPIC"] == route.target
    await_(lambda: status(port)["members"], 30, worker.text)
    await_(lambda: len(status(port)["rates"]) > 1, 30, worker.text)
    ((name, held),) = status(port)["members"]["hold"].items()
    assert status(port)["instance"] in name
    assert held == {route.source: [0]}
    answer, page = ask(port, "/")
    assert answer == 200
    assert '<script defer src="page.js">' in page


@pytest.mark.long
@pytest.mark.rounds
@at_length
def test_brokers_that_die_one_after_another_end_neither_the_survey_nor_the_worker(
    route_of, cluster, port
):
    route = route_of(
        3,
        servers=cluster,
        TELEMETRY__PORT=str(port),
        TELEMETRY__LAG_INTERVAL="1s",
        TELEMETRY__LOG_LEVEL="debug",
    )

    def surveyed(worker: Any) -> int:
        lines = worker.lines("lag_updated")
        return sum(len(line["partition_lags"]) == 7 for line in lines)  # 3 of ours, 4 written to

    written = 0
    try:
        worker = route.worker()
        for _round in range(2):
            for broker in cluster.kafka.brokers:
                complete = surveyed(worker)
                await_(lambda most=complete: surveyed(worker) > most, 60, worker.text)  # type: ignore[misc]
                broker.kill()
                route.write(b"%d" % written)
                written += 1
                route.await_outputs(written)
                complete = surveyed(worker)
                # With one of three away the others lead everything, as soon as that is told.
                await_(lambda most=complete: surveyed(worker) > most, 90, worker.text)  # type: ignore[misc]
                broker.start()
                cluster.kafka.await_ready()
        assert worker.terminate() == 0
    finally:
        for broker in cluster.kafka.brokers:
            if not broker.running:
                broker.start()
        cluster.kafka.await_ready()
