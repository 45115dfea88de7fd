"""Evictions against the disruption budget, on a real API server: nodes are drained pod by pod."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from tests.deploy.release import EACH_KIND, IMAGE, REPLICAS

pytestmark = pytest.mark.deep  # needs an API server
ALLOWED, REFUSED = HTTPStatus.CREATED, HTTPStatus.TOO_MANY_REQUESTS


@EACH_KIND
def test_a_second_pod_is_not_evicted_before_the_first_is_back(release):
    pods = release.installed()
    pods.await_budget(healthy=REPLICAS, allowed=1)
    first, second, _third = pods.ready()
    assert pods.evict(first) == ALLOWED
    assert pods.evict(second) == REFUSED
    # The same once the controller has counted, and a replacement waits to be ready.
    pods.await_count(REPLICAS)
    pods.await_budget(healthy=REPLICAS - 1, allowed=0)
    assert pods.evict(second) == REFUSED
    pods.bring_up(REPLICAS, IMAGE)
    pods.await_budget(healthy=REPLICAS, allowed=1)
    assert pods.evict(second) == ALLOWED


@EACH_KIND
def test_without_a_budget_all_pods_are_evicted_at_once(release):
    pods = release.installed("--set", "disruptionBudget.enabled=false")
    assert [pods.evict(name) for name in pods.ready()] == [ALLOWED] * REPLICAS


@EACH_KIND
def test_pods_that_are_not_ready_can_be_evicted_all_at_once(release):
    pods = release.installed()
    names = pods.ready()
    for name in names:
        pods.report(name, ready=False)
    pods.await_budget(healthy=0, allowed=0)
    assert pods.evict(names[0]) == ALLOWED
    # The control: this is by the chart's choice, and not by the default of Kubernetes.
    pods.change_budget(unhealthyPodEvictionPolicy="IfHealthyBudget")
    assert [pods.evict(name) for name in names[1:]] == [REFUSED, REFUSED]
    pods.change_budget(unhealthyPodEvictionPolicy="AlwaysAllow")
    assert [pods.evict(name) for name in names[1:]] == [ALLOWED, ALLOWED]
