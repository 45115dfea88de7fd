"""Doubts of a transaction whose requests or answers are lost, and the fence that ends them.

What a late request does is in tests/contract/test_rules_late_requests.py (KAFKA-17754).
"""

import time

import pytest

from hapax.sandbox import SandboxTopic
from tests.kit.faults import Rule
from tests.kit.native_build import PATHS
from tests.kit.parts import Parts
from tests.kit.topics import committed, produce, read_back

TEN = [b"%d" % number for number in range(10)]

pytestmark = pytest.mark.parametrize("fast", PATHS)
"""Doubts by lines, and by counted requests."""


@pytest.fixture
def route(sandbox, unique):
    """Ten records, waiting: source, target, app."""
    source, target = unique("source"), unique("target")
    sandbox.create_topics(SandboxTopic(source), SandboxTopic(target))
    produce(sandbox.bootstrap_servers, source, *TEN)
    return source, target, unique("app")


def values(bootstrap: str, target: str) -> list[bytes | None]:
    return [record.value for record in read_back(bootstrap, target)]


@pytest.mark.parametrize("api", ["EndTxn", "TxnOffsetCommit", "AddOffsetsToTxn", "Produce"])
@pytest.mark.parametrize("action", ["reset_before", "reset_after"])
def test_a_lost_connection_inside_a_transaction_is_always_doubted(
    route, proxied_broker, fast, api, action, in_time
):
    source, target, app = route
    with Parts(proxied_broker.proxied, source, target, app, HAPAX_FAST=fast) as parts:
        parts.process(parts.take(2))
        assert parts.transaction.doubts == []
        rule = proxied_broker.proxy.add(Rule(api, action))
        began_s = time.monotonic()
        parts.process(parts.take(3))
        assert rule.hit.is_set()
        in_time(time.monotonic() - began_s, 10)
        assert parts.transaction.doubts, parts.lines
        if fast == "on":
            assert all("sent, and" in doubt for doubt in parts.transaction.doubts)
        parts.fence_doubt()
        parts.process(parts.take(5))
        assert parts.transaction.doubts == []
    assert values(proxied_broker.direct, target) == TEN
    assert committed(proxied_broker.direct, app, source) == {0: 10}


@pytest.mark.parametrize("api", ["EndTxn", "TxnOffsetCommit", "AddOffsetsToTxn"])
def test_an_answer_that_never_comes_is_doubted(route, proxied_broker, fast, api):
    source, target, app = route
    with Parts(proxied_broker.proxied, source, target, app, HAPAX_FAST=fast) as parts:
        rule = proxied_broker.proxy.add(Rule(api, "mute_after"))
        parts.process(parts.take(5))
        assert rule.hit.is_set()
        assert parts.transaction.doubts
    assert committed(proxied_broker.direct, app, source) == {0: 5}


def test_healthy_transactions_are_never_doubted(route, sandbox, fast):
    source, target, app = route
    with Parts(sandbox.bootstrap_servers, source, target, app, HAPAX_FAST=fast) as parts:
        for _record in TEN:
            parts.process(parts.take(1))
            assert parts.transaction.doubts == [], parts.lines
        reported = any("changed state" in line for line in parts.lines)
        assert reported == (fast == "off"), "lines are asked for only where they are read"
