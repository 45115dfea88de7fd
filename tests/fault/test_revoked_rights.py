"""Rights that are revoked and passwords that change while a worker is at work."""

from contextlib import closing

import pytest

from hapax.cluster.cluster_state import Right
from hapax.sandbox import Sandbox
from tests.kit.at_work import QUICK, at_work, await_exit, numbers, refused, untouched, values
from tests.kit.guarded import GUARDED, WholeGuard, tokens_of, withdraw
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.waiting import await_

USER, PASSWORD, ANOTHER = "hapax", "open-sesame", "close-sesame"


@pytest.fixture(scope="module")
def guarded():
    """A broker that asks for a password and knows rights; no Redis."""
    with Sandbox(redis=False, guarded=WholeGuard) as sandbox, closing(tokens_of(sandbox)):
        sandbox.rights.set_password(USER, PASSWORD)
        yield sandbox


@pytest.fixture
def rights(guarded):
    return guarded.rights


@pytest.fixture
def route(guarded, rights, route_of):
    route = route_of(
        servers=guarded,
        KAFKA__BOOTSTRAP_SERVERS=guarded.kafka.guarded(GUARDED),
        KAFKA__SECURITY__PROTOCOL="sasl_plaintext",
        KAFKA__SECURITY__SASL_MECHANISM="SCRAM-SHA-256",
        KAFKA__SECURITY__USERNAME=USER,
        KAFKA__SECURITY__PASSWORD=PASSWORD,
        TRANSFORM="tests.kit.orders:slow",
        **QUICK,
    )
    for right in needed(route).values():
        rights.allow(USER, right)
    return route


def needed(route: PipelineUnderTest) -> dict[str, Right]:
    return {
        "topic read": Right("TOPIC", route.source, "READ", "TOPIC_AUTHORIZATION"),
        "topic write": Right("TOPIC", route.target, "WRITE", "TOPIC_AUTHORIZATION"),
        "dead letters": Right("TOPIC", route.dead_letters, "WRITE", "TOPIC_AUTHORIZATION"),
        "group": Right("GROUP", route.app, "READ", "GROUP_AUTHORIZATION"),
        "transactional id": Right(
            "TRANSACTIONAL_ID", f"{route.app}:w-0", "ALL", "TRANSACTIONAL_ID_AUTHORIZATION"
        ),
    }


@pytest.mark.row("A1")
@pytest.mark.parametrize("which", ["topic read", "topic write", "group", "transactional id"])
def test_a_worker_whose_right_is_revoked_says_so_and_goes_on_exactly_once_after_the_grant(
    route, rights, proof, which
):
    right = needed(route)[which]
    route.write(*numbers(range(3000)))
    worker = at_work(route.worker(), 2)
    revoked = withdraw(rights, USER, right)
    await_exit(worker, 1, "not allowed", right.reason)
    (done,) = route.committed().values()
    assert done is not None
    assert 0 < done < 3000
    assert len(route.outputs()) == done
    rights.allow(USER, right)
    route.run_to_end(TRANSFORM="tests.kit.orders:obey")
    assert values(route) == sorted(numbers(range(3000)))
    proof.note(struck=revoked, note=f"{which}: exit 1")


def login_failures(worker: WorkerProcess) -> list[str]:
    lines = (str(line["text"]) for line in worker.lines("librdkafka_logged"))
    return [text for text in lines if "invalid credentials" in text]


@pytest.mark.row("A2")
def test_a_password_that_changes_stops_nothing_once_it_is_known_again(route, rights, proof):
    route.write(*numbers(range(3000)))
    worker = at_work(route.worker(), 2)
    rights.set_password(USER, ANOTHER)
    try:
        # A producer between two transactions has nothing to build: only the refusals are certain.
        await_(lambda: not worker.running or len(login_failures(worker)) >= 3, 60, worker.text)
        assert worker.running
    finally:
        rights.set_password(USER, PASSWORD)
    route.end(worker)
    assert values(route) == sorted(numbers(range(3000)))
    proof.note(
        struck=len(login_failures(worker)),
        note="sessions end after 3 s; logs in again with the password of before",
    )


@pytest.mark.row("A1", "A2")
def test_control_without_rights_or_with_another_password_nothing_starts(route, rights):
    route.write(b"1")
    await_exit(
        route.worker(KAFKA__SECURITY__PASSWORD=ANOTHER), 3, "no broker answered", "credentials"
    )
    for right in needed(route).values():
        assert withdraw(rights, USER, right) == 1
    refused(route, 3, route.source, route.target, "may not be read")
    assert untouched(route)
