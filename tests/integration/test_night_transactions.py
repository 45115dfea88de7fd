from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException

from service.adapters.kafka_replay import fence
from service.settings import load_settings
from service.wiring.parts import SystemClock
from tests.kit.flow import await_
from tests.kit.night import Desk, settle
from tests.kit.route import Route
from tests.kit.topics import read_back, transaction

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from service.sandbox import Sandbox


@pytest.fixture
def route(sandbox: Sandbox, tmp_path: Path) -> Iterator[Route]:
    made = Route(sandbox, tmp_path)
    made.create()
    yield made
    made.close()


def test_an_open_transaction_is_told_and_aborted_by_hand(route: Route) -> None:
    name = f"{route.app}-gone"
    desk = Desk(route)
    with transaction(route.bootstrap, name) as producer:
        producer.produce(route.target, b"hidden")
        assert producer.flush(60) == 0
        told = desk.ask("transactions", "list")
        (one,) = told["transactions"]
        assert one | {"transactional_id": name, "state": "open"} == one
        assert one["partitions"] == [f"{route.target}/0"]
        assert 0 <= one["age_seconds"] < 300
        (gap,) = told["undecided"]
        assert (gap["topic"], gap["transactional_ids"]) == (route.target, [name])
        assert f"by {name}" in desk.type("transactions", "list").stdout
        done = desk.ask("transactions", "abort", name, "--yes")
        assert done == {"aborted": True, "undecided": []}
        with pytest.raises(KafkaException):
            producer.commit_transaction(60)
    settle(route)
    assert read_back(route.bootstrap, route.target) == []
    again = desk.type("transactions", "abort", name, "--yes")
    assert (again.exit_code, "nothing to abort" in again.stdout) == (0, True)
    assert "Nothing is undecided" in desk.type("transactions", "list").stdout


def test_what_another_program_has_open_is_blamed_on_nobody_of_ours(route: Route) -> None:
    desk = Desk(route)
    with transaction(route.bootstrap) as producer:
        producer.produce(route.target, b"hidden")
        assert producer.flush(60) == 0
        told = desk.ask("transactions", "list")
        assert told["transactions"] == []
        (gap,) = told["undecided"]
        assert gap["transactional_ids"][0].startswith("test-")
        producer.abort_transaction(60)
    unknown = desk.type("transactions", "abort", f"{route.app}-never", "--yes")
    assert unknown.exit_code == 1
    assert "know no transactional id" in unknown.stderr


def test_a_live_worker_is_told_and_survives_being_fenced(route: Route) -> None:
    worker = route.worker()
    route.write(b"1")
    route.await_outputs(1)
    desk = Desk(route)
    name = f"{route.app}:w-0"
    (one,) = desk.ask("transactions", "list")["transactions"]
    assert (one["transactional_id"], one["alive"]) == (name, True)

    # Its transactions last milliseconds: it takes many looks to find one open, so none is asked
    # for; the producer is fenced as the command does it.
    fence(load_settings(desk.environment), name, SystemClock())
    route.write(b"2")
    await_(lambda: len(route.outputs()) == 2, 60, worker.text)
    assert [record.value for record in route.outputs()] == [b"1", b"2"]
    assert worker.terminate() == 0


def test_without_the_right_to_the_states_gaps_are_told_and_an_abort_still_works(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.wiring.transactions.LOG", "hidden-from-us")
    name = f"{route.app}-gone"
    desk = Desk(route)
    with transaction(route.bootstrap, name) as producer:
        producer.produce(route.target, b"hidden")
        assert producer.flush(60) == 0
        told = desk.ask("transactions", "list")
        assert (told["states_known"], told["transactions"]) == (False, [])
        assert "hidden-from-us" in told["reason"]
        assert [gap["transactional_ids"] for gap in told["undecided"]] == [[]]
        assert "States are not known" in desk.type("transactions", "list").stdout
        assert desk.ask("transactions", "abort", name, "--yes")["aborted"] is True
    settle(route)
    assert read_back(route.bootstrap, route.target) == []
