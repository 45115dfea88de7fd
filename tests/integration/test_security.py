"""The worker on every way into a cluster that asks who it is, with the least rights that it prints.

All workers of this file start together: what takes time is the start of a process.
"""

import time
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import pytest

from hapax.core.cluster_state import Right
from hapax.kafka.connection import access
from hapax.sandbox import Sandbox
from hapax.settings import load_settings
from tests.kit.at_work import untouched
from tests.kit.doctor import ENVIRON
from tests.kit.guarded import tokens_of
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.secured import (
    INSTANCE,
    SCRAM_PASSWORD,
    WAYS,
    Way,
    login,
    needed,
    stand_in,
    token_file,
    way,
)
from tests.kit.waiting import await_

TEN = [b"%d" % number for number in range(10)]
WITHIN_S = 90.0


class Journey(NamedTuple):
    """One worker, on topics of its own."""

    route: PipelineUnderTest
    worker: WorkerProcess


def _route(sandbox: Sandbox, folder: Path, chosen: Way, **more: Any) -> PipelineUnderTest:
    folder.mkdir()
    route = PipelineUnderTest(sandbox, folder, **chosen.settings, **more)
    route.create()
    route.write(*TEN)
    return route


def _leave(worker: WorkerProcess) -> int:
    await_(lambda: not worker.running, WITHIN_S, worker.text)
    return worker.exit_code()


# -- every way in -------------------------------------------------------------------------

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in WAYS},
    "names that change": (
        "SCRAM-SHA-256",
        {"GROUP__MEMBERSHIP": "dynamic", "GROUP__PROTOCOL": "consumer"},
    ),
    "no transactions": ("SCRAM-SHA-512", {"GUARANTEE": "at_least_once"}),
}
"""By name: the way in, and settings that ask for other rights."""


@pytest.fixture(scope="module")
def journeys(guarded, tmp_path_factory):
    folder, started = tmp_path_factory.mktemp("ways"), {}
    for name, (how, more) in KINDS.items():
        chosen = way(guarded, how)
        route = _route(guarded, folder / name.replace(" ", "-"), chosen, **more)
        if chosen.user is not None:
            guarded.rights.allow(chosen.user, *needed(route))
        worker = route.worker(INSTANCE, STOP_AFTER__AT_END="true")
        started[name] = Journey(route, worker)
    yield started
    for journey in started.values():
        journey.route.close()


@pytest.mark.parametrize("name", KINDS)
def test_a_worker_does_its_work_with_exactly_the_rights_that_are_printed(journeys, name):
    route, worker = journeys[name]
    assert _leave(worker) == 0, worker.text()
    assert sorted(record.value or b"" for record in route.outputs()) == TEN
    assert route.lag() == 0
    assert "AUTHORIZATION" not in str(worker.lines("lag_monitor_failed")), worker.text()


# -- each right, left out -----------------------------------------------------------------

LEFT_OUT = {
    "TOPIC READ in": (3, ["HAPAX_INPUT__TOPICS", "may not be read"]),
    "TOPIC WRITE out": (3, ["HAPAX_OUTPUT__TOPIC", "may not be read"]),
    "TOPIC WRITE dead": (3, ["HAPAX_DEAD_LETTER__TOPIC", "may not be read"]),
    "GROUP READ app": (1, ["not allowed", "GROUP_AUTHORIZATION"]),
    "TRANSACTIONAL_ID WRITE app:w-0": (3, ["TRANSACTIONAL_ID_AUTHORIZATION"]),
}


def _named(route: PipelineUnderTest, right: Right) -> str:
    name = right.name.removeprefix(f"{route.app}-") if right.resource == "TOPIC" else right.name
    return f"{right.resource} {right.operation} {name.replace(route.app, 'app')}"


@pytest.fixture(scope="module")
def deprived(guarded, tmp_path_factory):
    """Workers that lack one right each."""
    folder, started = tmp_path_factory.mktemp("rights"), {}
    for number in range(len(LEFT_OUT)):
        user = f"deprived-{number}"
        guarded.rights.set_password(user, SCRAM_PASSWORD)
        known = {"USERNAME": user, "PASSWORD": SCRAM_PASSWORD}
        chosen = Way(user, login(guarded, "SCRAM-SHA-256", **known))
        route = _route(guarded, folder / user, chosen)
        rights = needed(route)
        assert len(rights) == len(LEFT_OUT)
        guarded.rights.allow(user, *(right for right in rights if right != rights[number]))
        started[_named(route, rights[number])] = Journey(route, route.worker(INSTANCE))
    yield started
    for journey in started.values():
        journey.route.close()


@pytest.mark.parametrize("which", LEFT_OUT)
def test_without_any_one_of_them_it_leaves_with_the_reason_and_has_done_nothing(deprived, which):
    route, worker = deprived[which]
    code, words = LEFT_OUT[which]
    assert _leave(worker) == code, worker.text()
    reason = "\n".join(line for line in worker.text().splitlines() if "service_started" not in line)
    assert all(word in reason for word in words), reason
    assert "Traceback" not in reason
    assert untouched(route)


# -- tokens of Amazon MSK, from something that stands for its signer ----------------------


def test_the_broker_sees_the_token_that_the_signer_gives(guarded, monkeypatch):
    chosen = login(guarded, "OAUTHBEARER", OAUTH_MSK_REGION="eu-central-1")
    settings = load_settings(
        {**ENVIRON, "HAPAX_DEDUP__REDIS_URL": ""} | {f"HAPAX_{k}": v for k, v in chosen.items()}
    )
    tokens, asked = tokens_of(guarded), []

    def sign(region: str) -> tuple[str, int]:
        asked.append(region)
        return tokens.token(), int((time.time() + 60) * 1000)

    stand_in(monkeypatch, sign)
    assert access(settings).text is None
    assert set(asked) == {"eu-central-1"}
    stand_in(monkeypatch, lambda _region: ("unsigned", int((time.time() + 60) * 1000)))
    assert access(settings).refused


# -- tokens that end ----------------------------------------------------------------------


@pytest.mark.long
def test_a_token_file_is_read_again_before_its_token_ends(guarded, tmp_path):
    tokens, chosen = tokens_of(guarded), way(guarded, "token file")
    lifetime_s, tokens.lifetime_s = tokens.lifetime_s, 10
    route, stop = _route(guarded, tmp_path / "file", chosen), Event()
    written: list[float] = []

    def write() -> None:
        """Do what Kubernetes does: a new token long before the last one ends."""
        while not stop.is_set():
            new = tmp_path / "token.new"
            new.write_text(tokens.token(), encoding="ascii")
            new.replace(token_file(guarded))
            written.append(time.monotonic())
            stop.wait(3.0)

    writer = Thread(target=write)
    writer.start()
    try:
        await_(lambda: bool(written), WITHIN_S, lambda: "no token was written")
        guarded.rights.allow(tokens.client_id, *needed(route))
        worker = route.worker(INSTANCE)
        route.await_lag_0()
        since = len(written)
        await_(lambda: len(written) > since + 3 * tokens.lifetime_s / 3.0, WITHIN_S, worker.text)
        route.write(*TEN)
        route.await_lag_0()
        assert worker.terminate() == 0, worker.text()
        assert not worker.lines("producer_rebuilt"), worker.text()
    finally:
        stop.set()
        writer.join()
        tokens.lifetime_s = lifetime_s
        route.close()
    assert len(route.outputs()) == 2 * len(TEN)


@pytest.mark.long
def test_tokens_are_fetched_anew_while_the_worker_works(guarded, tmp_path):
    tokens, chosen = tokens_of(guarded), way(guarded, "tokens")
    lifetime_s, tokens.lifetime_s = tokens.lifetime_s, 10
    route = _route(guarded, tmp_path / "tokens", chosen)
    try:
        guarded.rights.allow(tokens.client_id, *needed(route))
        worker = route.worker(INSTANCE)
        route.await_lag_0()
        served = tokens.served
        # Consumer, producer and whoever else asks have one each; the brokers end a session with
        # its token, and after 3 s in any case.
        await_(lambda: tokens.served >= served + 6, WITHIN_S, worker.text)
        route.write(*TEN)
        route.await_lag_0()
        assert worker.terminate() == 0, worker.text()
        assert not worker.lines("producer_rebuilt"), worker.text()
    finally:
        tokens.lifetime_s = lifetime_s
        route.close()
    assert len(route.outputs()) == 2 * len(TEN)
