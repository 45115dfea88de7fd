"""A group that another client has used: it leaves no offset where it has read nothing."""

import time
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.kit.at_work import values
from tests.kit.night import Desk, ran
from tests.kit.routes import a_route
from tests.kit.topics import Given
from tests.kit.waiting import await_

PARTITIONS, OLD = 4, 20
route = a_route(partitions=PARTITIONS, GROUP__MEMBERSHIP="dynamic")


def batch(name: bytes, partitions: range = range(PARTITIONS), count: int = OLD) -> list[Given]:
    return [Given(b"%s-%d" % (name, p), partition=p) for p in partitions for _ in range(count)]


def used_by_another_client(route) -> None:
    """Commit in partition 0 alone, with a text of its own, as Sarama and franz-go do."""
    client = Consumer({"bootstrap.servers": route.bootstrap, "group.id": route.app})
    offsets = [TopicPartition(route.source, 0, OLD, "a text é of another client")]
    client.commit(offsets=offsets, asynchronous=False)
    client.close()


@pytest.mark.parametrize(
    ("start", "old"),
    [("earliest", 3 * OLD), ("latest", 0), ("time", 0), ("places", 3 * 5)],
)
def test_start_decides_where_another_client_has_left_no_offset(route, start, old):
    route.write(*batch(b"old"))
    used_by_another_client(route)
    words = {
        "time": datetime.fromtimestamp(time.time() + 1, UTC).isoformat(),
        "places": ",".join(f"{route.source}/{n}/{OLD - 5}" for n in range(PARTITIONS)),
    }
    given = words.get(start, start)
    if start == "time":
        time.sleep(1.1)  # the time that is named has to lie in the past
        route.write(*batch(b"new", count=1))
    told = Desk(route, INPUT__START=given).ask("offsets")["partitions"]
    worker = route.worker(INPUT__START=given)
    route.await_outputs(old + (PARTITIONS if start == "time" else 0))
    await_(lambda: None not in route.committed().values(), 60, worker.text)
    assert worker.terminate() == 0
    if start != "time":
        route.write(*batch(b"new", count=1))
    ran(route, INPUT__START=given)
    found = values(route)
    assert len([value for value in found if value.startswith(b"old")]) == old
    assert [value for value in found if value.startswith(b"new")] == [
        b"new-%d" % number for number in range(PARTITIONS)
    ]
    places = {"earliest": 0, "latest": OLD, "time": OLD, "places": OLD - 5}
    assert [one["position"] for one in told] == [OLD] + [places[start]] * 3
    (passed,) = worker.lines("preflight_passed")
    (remark,) = [one for one in passed["remarks"] if "have no offset" in one]
    assert "3 of 4 partitions have no offset, they begin at HAPAX_INPUT__START=" in remark


def test_a_kill_right_after_a_takeover_changes_nothing_of_where_it_begins(route):
    route.write(*batch(b"old"))
    used_by_another_client(route)
    route.write(*batch(b"new", range(1)))
    worker = route.worker(INPUT__START="latest")
    route.await_outputs(1)
    worker.kill()
    ran(route, INPUT__START="latest")
    assert set(values(route)) == {b"new-0"}


def test_an_offset_set_by_hand_in_one_partition_leaves_start_to_the_others(route):
    route.write(*batch(b"old"))
    used_by_another_client(route)
    Desk(route).ask("offsets", "set", f"{route.source}/0/15", "--yes")
    ran(route, INPUT__START="latest")
    assert values(route) == [b"old-0"] * 5
