"""What is asked of the brokers before the first record is read."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from hapax.cluster.cluster_state import Address
from hapax.core.errors import ClaimsUnavailableError, PreflightError
from hapax.core.interrupt import Interrupt
from hapax.engines.lifecycle import Lifecycle, Process
from hapax.engines.preflight import BOUNDED_S, check
from hapax.kafka.admin import topics
from hapax.kafka.admin.topics import KafkaPreflight
from hapax.operations.doctor.brokers import Level, durability
from hapax.settings import load_settings
from tests.kit.doubles import Ticking, Told
from tests.unit.test_settings import REQUIRED


@pytest.mark.parametrize("bounded", [True, False])
def test_a_bounded_run_waits_for_a_claim_store_no_longer_than_for_brokers(*, bounded):
    """Without an end it waits until it is stopped."""
    clock = Ticking()
    told: Any = Told()
    lifecycle = Lifecycle(clock, Interrupt(), timeout_s=10.0, wait=clock.wait)
    settings = load_settings(REQUIRED | {"HAPAX_STOP_AFTER__AT_END": str(bounded).lower()})
    brokers = Mock(process=Process(told, clock, lifecycle), settings=settings, problems=[])
    claims, began_s = Mock(check=Mock(side_effect=ClaimsUnavailableError("refused"))), clock.now_s

    def stop() -> None:
        if clock.now_s > began_s + 99:
            lifecycle.stop("SIGTERM")

    told.on["claims_unavailable"] = stop
    if bounded:
        with pytest.raises(PreflightError, match="HAPAX_DEDUP__REDIS_URL: refused"):
            check(brokers, Mock(strangers=list), claims)
        assert BOUNDED_S < clock.now_s - began_s < BOUNDED_S + 2
    else:
        assert check(brokers, Mock(strangers=list), claims) is None


@pytest.mark.parametrize(
    ("protocol", "apis", "refused"),
    [
        ("consumer", {"ConsumerGroupHeartbeat": 1}, False),
        ("consumer", {"ConsumerGroupHeartbeat": 0}, True),
        ("consumer", {"Fetch": 16}, True),
        ("consumer", {}, False),
        ("classic", {"Fetch": 16}, False),
    ],
)
def test_brokers_that_do_not_serve_the_group_protocol_are_refused_by_name(
    monkeypatch, protocol, apis, *, refused
):
    """Its members would get no partition and no error. What is not known is not refused."""
    monkeypatch.setattr(topics, "request_versions", lambda _settings: apis)
    monkeypatch.setattr(topics, "bootstrap", lambda _servers: {"a:1": Address("a:1")})
    membership = {"HAPAX_GROUP__PROTOCOL": protocol, "HAPAX_GROUP__MEMBERSHIP": "dynamic"}
    cluster: Any = SimpleNamespace(cluster_id="here", topics={})
    looked = KafkaPreflight(load_settings(REQUIRED | membership), lambda _s: cluster).look()
    told = "set HAPAX_GROUP__PROTOCOL=classic, or upgrade the brokers"
    assert (looked.refused, looked.problem.endswith(told)) == (refused, refused)


@pytest.mark.parametrize(
    ("replicas", "in_sync_min", "level", "tolerates"),
    [
        (1, 1, Level.LOWEST, 0),
        (1, 2, Level.LOWEST, 0),
        (2, 1, Level.LOW, 1),
        (3, 1, Level.MEDIUM, 2),
        (2, 2, Level.HIGH, 0),
        (3, 2, Level.HIGH, 1),
        (5, 3, Level.HIGH, 2),
        (3, 3, Level.HIGHEST, 0),
        (5, 5, Level.HIGHEST, 0),
    ],
)
def test_replicas_and_the_in_sync_minimum_make_one_grade(replicas, in_sync_min, level, tolerates):
    assert durability(replicas=replicas, in_sync_min=in_sync_min) == (level, tolerates)


def test_more_copies_never_make_a_lower_grade():
    for replicas in range(1, 8):
        grades = [
            durability(replicas=replicas, in_sync_min=each)[0] for each in range(1, replicas + 1)
        ]
        assert grades == sorted(grades)
