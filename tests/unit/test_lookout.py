"""The thread that looks at the logs, and what it asks; tests/integration has brokers."""

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from hapax.cluster.lag import GroupProgress, OffsetSnapshot, Retention
from hapax.cluster.partition_offsets import LogOffsets
from hapax.engines.monitors import LagMonitor
from hapax.kafka.read import lag_probe as kafka_survey, offsets_client
from hapax.kafka.read.lag_probe import KafkaLagProbe
from tests.kit.doubles import Told
from tests.kit.log_brokers import AWAY, OUT, P0, P1, Brokers
from tests.kit.spark_driver import STOP, done, played
from tests.kit.waiting import await_


class ConfiguredBrokers(Brokers):
    """These also say how topics keep their records."""

    def __init__(self) -> None:
        super().__init__()
        self.config: dict[str, str] | KafkaException | TimeoutError = {
            "cleanup.policy": "delete",
            "retention.ms": "100000",
            "retention.bytes": "-1",
        }
        self.configs_asked = 0

    def admin(self, properties: dict[str, Any], *, logger: object) -> "ConfiguredBrokers":
        return self

    def describe_configs(self, asked: list[Any], request_timeout: float) -> dict[Any, Any]:
        self.configs_asked += 1
        return {resource: Answer(self.config) for resource in asked}


class Answer:
    def __init__(self, config: dict[str, str] | Exception) -> None:
        self._config = config

    def result(self, timeout_s: float) -> dict[str, Any]:
        if isinstance(self._config, Exception):
            raise self._config
        return {name: type("E", (), {"value": value}) for name, value in self._config.items()}


@pytest.fixture
def brokers(monkeypatch):
    brokers = ConfiguredBrokers()
    monkeypatch.setattr(offsets_client, "Consumer", brokers.client)
    monkeypatch.setattr(kafka_survey, "AdminClient", brokers.admin)
    return brokers


def probe(*outputs: str) -> KafkaLagProbe:
    properties = {"bootstrap.servers": "b", "group.id": "shop", "group.instance.id": "shop-0"}
    return KafkaLagProbe(properties, outputs or ("out", "out"), logger=None, wall_s=lambda: 1000.0)


def test_a_survey_brings_marks_ages_and_retention(brokers):
    survey = probe().probe({P0: 1, P1: 2})
    assert survey.offsets == {where: offsets for where, (offsets, _) in brokers.logs.items()}
    assert survey.unread_s == {P0: pytest.approx(950, abs=1), P1: pytest.approx(980, abs=1)}
    assert survey.retention == {"in": Retention(100_000, None)}
    assert (survey.failures, survey.remarks) == ([], [])
    assert [client["isolation.level"] for client in brokers.clients] == [
        "read_uncommitted",
        "read_committed",
    ]
    assert {client["group.id"] for client in brokers.clients} == {"lag-monitor"}, "joins nothing"
    assert not [client for client in brokers.clients if "group.instance.id" in client]
    assert probe().probe({P0: 3}).unread_s == {}, "what is read is not asked for its age"
    assert probe().probe({}).retention == {}


def test_a_broker_that_is_away_hides_its_own_partitions_and_the_clients_are_replaced(brokers):
    mine = probe()
    brokers.away = 1
    survey = mine.probe({P0: 3, P1: 9})
    assert survey.offsets.keys() == {P0, OUT}
    assert survey.failures == ["_TIMED_OUT: Local: Timed out"] * 3
    assert (brokers.configs_asked, len(brokers.clients)) == (0, 2)
    brokers.away = 0
    assert mine.probe({P0: 3, P1: 9}).offsets.keys() == {P0, P1, OUT}
    assert (brokers.configs_asked, len(brokers.clients)) == (1, 4)


def test_no_broker_at_all_is_an_answer_too_and_partitions_that_may_not_be_read_are_named(brokers):
    brokers.away = 2
    survey = probe().probe({P0: 3})
    assert (survey.offsets, survey.failures) == ({}, ["_TIMED_OUT: Local: Timed out"])
    brokers.away, brokers.refused = 0, KafkaError.TOPIC_AUTHORIZATION_FAILED
    survey = probe().probe({P0: 3})
    assert survey.offsets == {}
    assert "in/0: TOPIC_AUTHORIZATION_FAILED" in survey.failures[0]


def test_a_missing_right_to_see_the_configuration_is_told_once_and_no_failure(brokers, monkeypatch):
    monkeypatch.setattr(kafka_survey, "RETENTION_INTERVAL_S", 0.0)
    brokers.config = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    mine = probe()
    survey = mine.probe({P0: 3})
    assert (survey.failures, survey.retention) == ([], {})
    assert "grant DescribeConfigs" in survey.remarks[0]
    assert mine.probe({P0: 3}).remarks == []
    assert brokers.configs_asked == 2


@pytest.mark.parametrize("failure", [AWAY, TimeoutError()])
def test_a_configuration_that_is_not_told_is_a_failure(brokers, failure):
    brokers.config = failure
    assert [text[:3] for text in probe().probe({P0: 3}).failures] == ["in:"]


class LagProbe:
    def __init__(self, *answers: OffsetSnapshot | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[dict[tuple[str, int], int]] = []
        self.away = ""

    def unanswered(self) -> str:
        return self.away

    def probe(self, committed: dict[tuple[str, int], int]) -> OffsetSnapshot:
        self.asked.append(committed)
        answer = self.answers.pop(0) if self.answers else OffsetSnapshot(1000.0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def lag_monitor(
    probe: LagProbe,
    told: Told,
    interval_s: float = 0.01,
    group_progress: Callable[[], GroupProgress] = lambda: GroupProgress({P0: 3}),
) -> LagMonitor:
    events: Any = told
    return LagMonitor(probe, group_progress, events, interval_s=interval_s)


def test_the_thread_looks_again_and_again_until_it_is_stopped():
    told, asked = Told(), LagProbe()
    thread = lag_monitor(asked, told)
    thread.start()
    await_(lambda: told.names().count("lag_updated") > 3, 30, lambda: str(told.events))
    thread.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert asked.asked[0] == {P0: 3}
    assert thread.daemon


def test_what_was_found_is_told_with_what_was_not():
    told = Told()
    survey = OffsetSnapshot(
        1000.0, {P0: LogOffsets(0, 5, 5)}, failures=["away", "too"], remarks=["a right"]
    )
    assert not lag_monitor(LagProbe(survey), told).look()
    assert told.names() == ["lag_updated", "lag_monitor_limited", "lag_monitor_failed"]
    (facts,) = told.of("lag_updated")
    assert [one.lag for one in facts["partition_lags"]] == [2]
    assert (facts["at_s"], facts["complete"]) == (1000.0, False)
    assert told.of("lag_monitor_failed") == [{"reason": "away"}]


def test_a_look_or_pulse_that_fails_is_told_and_ends_nothing():
    moved = Mock(side_effect=RuntimeError("changed size during iteration"))
    told = Told()
    thread = lag_monitor(LagProbe(ValueError("unforeseen")), told)
    assert not thread.look()
    assert thread.look()
    assert not lag_monitor(LagProbe(), told, group_progress=moved).pulse()
    reasons = [facts["reason"] for facts in told.of("lag_monitor_failed")]
    assert reasons == ["ValueError: unforeseen", "RuntimeError: changed size during iteration"]


def test_brokers_that_answer_no_more_are_told_at_each_pulse_and_their_return_once():
    told, asked = Told(), LagProbe()
    thread = lag_monitor(asked, told)
    thread.look()
    asked.away = "kafka:9092: connection refused"
    assert not thread.pulse()
    assert not thread.pulse()
    assert told.of("brokers_unreachable") == [{"places": asked.away}] * 2
    asked.away = ""
    assert thread.pulse()  # whatever is known is old: survey now
    assert not thread.pulse()
    assert told.names().count("brokers_reached") == 1


def test_a_survey_that_no_broker_answers_says_so_as_a_pulse_does():
    told = Told()
    away = OffsetSnapshot(1000.0, failures=["away"], away="kafka:9092: no answer")
    thread = lag_monitor(LagProbe(away), told)
    assert not thread.look()
    assert told.of("brokers_unreachable") == [{"places": "kafka:9092: no answer"}]
    assert thread.look()
    assert told.names().count("brokers_reached") == 1


def test_partitions_that_came_or_went_are_surveyed_before_their_turn():
    stood = [GroupProgress({P0: 3}), GroupProgress({P0: 9}), GroupProgress({P0: 9, P1: 0})]
    thread = lag_monitor(LagProbe(), Told(), group_progress=lambda: stood.pop(0))
    thread.look()
    assert not thread.pulse()
    assert thread.pulse()


def test_while_brokers_are_away_the_looks_become_rarer_up_to_a_minute():
    thread = lag_monitor(LagProbe(), Told(), interval_s=10.0)
    waits_s, wait_s = [], 10.0
    for well in (False, False, False, False, True, False):
        wait_s = thread._next_s(wait_s, well=well)
        waits_s.append(wait_s)
    assert waits_s == [20.0, 40.0, 60.0, 60.0, 10.0, 20.0]


@played(lanes=2)
def test_a_spark_driver_stands_where_its_reports_say(driver):
    assert driver.engine.group_progress() == GroupProgress()
    stood: list[GroupProgress] = []
    driver.assign({P0: 100, P1: 100}, p0=7)  # nothing is committed in the other one yet
    yield from driver.started(0)
    stood.append(driver.engine.group_progress())
    driver.jobs.end(0, **done(P0, 7, 100))
    yield from driver.until(lambda: driver.engine.group_progress() != stood[0])
    stood.append(driver.engine.group_progress())
    driver.lifecycle.stop("enough")
    yield STOP
    assert [one.committed for one in stood] == [{P0: 7}, {P0: 100}]
