"""Requests that something on the way keeps and lets go into a later transaction (KAFKA-17754).

Each case runs with the fence and, as control, without it: the control must lose or regress.
"""

import time

import pytest

from hapax.sandbox import SandboxTopic
from tests.kit.faults import Rule
from tests.kit.native_build import PATHS
from tests.kit.parts import Parts
from tests.kit.rulebook import disregard
from tests.kit.topics import committed, produce, read_back

INVALID_PRODUCER_EPOCH = 47
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


@pytest.mark.row("S-K1")
@pytest.mark.parametrize("fenced", [True, False])
def test_a_late_abort_changes_nothing_in_the_next_transaction(
    route, proxied_broker, fast, *, fenced
):
    source, target, app = route
    with Parts(proxied_broker.proxied, source, target, app, HAPAX_FAST=fast) as parts:
        late = proxied_broker.proxy.add(Rule("EndTxn", "hold"))
        batch = parts.take(10)
        parts.begin(batch)
        parts.transaction.abort()  # the client sends EndTxn again by itself, and is content
        assert late.hit.is_set()
        assert parts.transaction.doubts
        parts.source.rewind(batch.first)
        if fenced:
            parts.fence_doubt()
        else:
            disregard(parts.transaction)
        batch = parts.take(10)
        parts.begin(batch)
        outbox = parts.transaction._outbox
        assert outbox is not None
        assert outbox.producer.flush(10) == 0
        late.release()
        assert late.wait_answered() == (INVALID_PRODUCER_EPOCH if fenced else 0)
        parts.transaction.send_offsets(batch.next)
        parts.transaction.commit()
    assert committed(proxied_broker.direct, app, source) == {0: 10}
    assert values(proxied_broker.direct, target) == (TEN if fenced else [])


@pytest.mark.row("S-K1")
@pytest.mark.parametrize("fenced", [True, False])
def test_late_offsets_do_not_move_the_progress_back(route, proxied_broker, fast, *, fenced):
    source, target, app = route
    with Parts(proxied_broker.proxied, source, target, app, HAPAX_FAST=fast) as parts:
        late = proxied_broker.proxy.add(Rule("TxnOffsetCommit", "hold"))
        batch = parts.take(5)
        parts.begin(batch)
        # What is held stalls all behind it on its connection: the outputs must be there before.
        outbox = parts.transaction._outbox
        assert outbox is not None
        assert outbox.producer.flush(10) == 0
        parts.transaction.send_offsets(batch.next)
        parts.transaction.commit()
        parts.source.mark_processed(batch.next)
        assert late.hit.is_set()
        assert parts.transaction.doubts
        if fenced:
            parts.fence_doubt()
        else:
            disregard(parts.transaction)
        batch = parts.take(4)
        parts.begin(batch)
        parts.transaction.send_offsets(batch.next)
        late.release()
        assert late.wait_answered() == (INVALID_PRODUCER_EPOCH if fenced else 0)
        parts.transaction.commit()
    assert values(proxied_broker.direct, target) == TEN[:9]
    assert committed(proxied_broker.direct, app, source) == {0: 9 if fenced else 5}


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
