"""What must not start does not start: one clear message, the right exit code, nothing consumed."""

import socket
from datetime import datetime

import pytest

from hapax.sandbox import Sandbox
from tests.kit.at_work import left, refused, untouched
from tests.kit.claim_stores import redis_server, tell
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.routes import a_route

SECRET = "open-sesame-4711"  # noqa: S105 - the point is that it is never shown
TEN = [b"%d" % number for number in range(10)]

closed = a_route(*TEN, scope="module")
"""A route on which nothing ever starts; its ten records must still be there."""


@pytest.fixture(scope="module", autouse=True)
def unanswered(closed):
    """Workers without brokers: the one refusal that takes its time runs beside all others.

    Without a bound of its run the first would wait (test_worker_starts.py).
    """
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{kept.getsockname()[1]}"
        yield {
            "nothing listens": closed.worker(
                KAFKA__BOOTSTRAP_SERVERS=address, STOP_AFTER__RECORDS="1"
            ),
            "no password is asked": closed.worker(
                KAFKA__SECURITY__PROTOCOL="sasl_plaintext",
                KAFKA__SECURITY__SASL_MECHANISM="PLAIN",
                KAFKA__SECURITY__USERNAME="hapax",
                KAFKA__SECURITY__PASSWORD=SECRET,
                TELEMETRY__LOG_LEVEL="debug",
            ),
        }


# -- settings: exit code 2 ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {
                "GUARANTEE": "exactly_twice",
                "TRANSACTION__INTERVAL": "soon",
                "OUTPUT__TOPIC": None,
                "DEDUB__TTL": "1h",
            },
            [
                "HAPAX_GUARANTEE",
                "HAPAX_TRANSACTION__INTERVAL",
                "HAPAX_OUTPUT__TOPIC",
                "HAPAX_DEDUB__TTL",
                "HAPAX_DEDUP__TTL",
            ],
        ),
        ({"TRANSFORM": "tests.kit.nowhere:f"}, ["HAPAX_TRANSFORM", "tests.kit.nowhere"]),
        ({"TRANSFORM": "tests.kit.orders:nothing"}, ["HAPAX_TRANSFORM", "has no nothing"]),
        ({"KAFKA__PROPERTIES": '{"acks": "1"}'}, ["HAPAX_KAFKA__PROPERTIES", "acks"]),
        ({"KAFKA__PROPERTIES": '{"socket.timeout.ms": "soon"}'}, ["HAPAX_KAFKA__PROPERTIES"]),
        ({"TRANSFORM": "msgspec.structs:asdict"}, ["HAPAX_OUTPUT__FORMAT", "returned a dict"]),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_settings_that_cannot_work_are_all_told_and_leave_with_2(closed, settings, words):
    refused(closed, 2, *words, **settings)
    assert untouched(closed)


def test_a_telemetry_port_that_is_taken_leaves_with_2(closed):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused(closed, 2, f"HAPAX_TELEMETRY__PORT={port}", TELEMETRY__PORT=str(port))
    assert untouched(closed)


# -- the outside: exit code 3 -------------------------------------------------------------


@pytest.mark.parametrize("case", ["nothing listens", "no password is asked"])
def test_brokers_that_do_not_answer_are_left_with_3_and_no_password_is_told(
    closed, unanswered, case, in_time
):
    text = left(unanswered[case], 3, "HAPAX_KAFKA__BOOTSTRAP_SERVERS", "no broker answered")
    assert SECRET not in text
    first, last = (
        datetime.fromisoformat(str(line["timestamp"]))
        for line in (unanswered[case].lines()[0], unanswered[case].lines()[-1])
    )
    in_time((last - first).total_seconds(), 15)
    assert untouched(closed)


def test_all_missing_topics_are_told_at_once_and_leave_with_3(sandbox, tmp_path):
    route = PipelineUnderTest(sandbox, tmp_path)
    topics = [route.source, route.target, route.dead_letters]
    variables = ["HAPAX_INPUT__TOPICS", "HAPAX_OUTPUT__TOPIC", "HAPAX_DEAD_LETTER__TOPIC"]
    worker = route.worker()
    worker.ends_with(3)
    (line,) = worker.lines("preflight_refused")
    problems = line["problems"]
    assert isinstance(problems, list)
    assert len(problems) == 3
    for problem, topic, variable in zip(problems, topics, variables, strict=True):
        assert topic in problem
        assert variable in problem


@pytest.mark.row("R5")
@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_claim_store_that_evicts_leaves_with_3(closed, tmp_path, policy):
    with redis_server(tmp_path / "redis") as server:
        tell(server, "config", "set", "maxmemory-policy", policy)
        words = ["HAPAX_DEDUP__REDIS_URL", "noeviction", policy]
        refused(closed, 3, *words, DEDUP__REDIS_URL=server.url)
    assert untouched(closed)


def test_a_transaction_timeout_above_that_of_the_brokers_leaves_with_3(tmp_path):
    with Sandbox(redis=False, properties={"transaction.max.timeout.ms": "5000"}) as sandbox:
        route = PipelineUnderTest(sandbox, tmp_path)
        route.create()
        refused(route, 3, "HAPAX_TRANSACTION__TIMEOUT", "transaction.max.timeout.ms")
        assert untouched(route)
        route.close()
