"""A pipeline that gets another name, and continues where it was."""

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.kit.at_work import event, values
from tests.kit.night import Desk, ran
from tests.kit.routes import a_route
from tests.kit.topics import Given, committed

RECORDS = 40
route = a_route(partitions=2, GROUP__MEMBERSHIP="dynamic")


def events(which: range) -> list[Given]:
    return [event(number, partition=number % 2) for number in which]


def renamed(route) -> dict[str, str]:
    return {"APP": f"{route.app}-v2"}


def remarks(worker) -> str:
    return "\n".join(worker.lines("preflight_passed")[0]["remarks"])


def test_a_pipeline_that_was_renamed_goes_on_where_it_was_once_offsets_are_adopted(
    redis_url, route
):
    name = {**renamed(route), "DEDUP__REDIS_URL": redis_url}
    route.write(*events(range(RECORDS)))
    ran(route, DEDUP__REDIS_URL=redis_url)
    route.write(*events(range(RECORDS, RECORDS + 10)))
    desk = Desk(route, **name)
    shown = desk.type("offsets", "adopt", route.app)
    assert (shown.exit_code, "Nothing was changed" in shown.stdout) == (0, True), shown.output
    assert "hapax claims rebuild" in shown.stdout
    done = desk.ask("offsets", "adopt", route.app, "--yes")
    assert [(one["partition"], one["offset"]) for one in done["moves"]] == [(0, 20), (1, 20)]
    desk.ask("claims", "rebuild", "--yes")
    route.write(*events(range(RECORDS)))  # sent once more
    worker = route.run_to_end(**name)
    assert values(route) == sorted(one.value or b"" for one in events(range(RECORDS + 10)))
    assert worker.lines("preflight_passed")[0]["remarks"] == []


def test_a_start_under_another_name_says_that_the_records_were_processed_before(route):
    route.write(*events(range(RECORDS)))
    ran(route)
    worker = route.run_to_end(**renamed(route))
    assert f"hapax offsets adopt {route.app}" in remarks(worker)
    assert len(values(route)) == 2 * RECORDS


def test_adopting_is_refused_while_the_other_group_has_members(route):
    route.write(*events(range(RECORDS)))
    worker = route.worker(GROUP__SESSION_TIMEOUT="6s", TRANSACTION__TIMEOUT="5s")
    route.await_lag_0()
    desk = Desk(route, **renamed(route), GROUP__SESSION_TIMEOUT="6s", TRANSACTION__TIMEOUT="5s")
    refused = desk.type("offsets", "adopt", route.app, "--yes")
    assert (refused.exit_code, f"group {route.app} has members" in refused.stderr) == (3, True)
    assert worker.terminate() == 0


@pytest.mark.parametrize(("start", "old"), [("earliest", 20), ("latest", 0)])
def test_where_an_adopted_group_has_no_offset_start_decides(route, start, old):
    route.write(*events(range(RECORDS)))
    client = Consumer({"bootstrap.servers": route.bootstrap, "group.id": f"{route.app}-go"})
    client.commit(offsets=[TopicPartition(route.source, 0, 20)], asynchronous=False)
    client.close()
    desk = Desk(route, INPUT__START=start)
    told = desk.type("offsets", "adopt", f"{route.app}-go", "--yes")
    assert "1 of 2 partitions have no offset, they begin at HAPAX_INPUT__START" in told.stdout
    assert committed(route.bootstrap, route.app, route.source) == {0: 20, 1: None}
    worker = route.run_to_end(INPUT__START=start)
    assert len(values(route)) == old, worker.text()


def test_names_that_are_no_other_group_are_refused_in_words(route):
    route.write(*events(range(2)))
    ran(route)
    desk = Desk(route)
    for name, code, words in (
        (route.app, 2, "is HAPAX_APP itself"),
        ("no-such-group", 1, "has no offset in"),
    ):
        done = desk.type("offsets", "adopt", name, "--yes")
        assert (done.exit_code, words in done.stderr) == (code, True), done.output
