"""docs/disaster-recovery.md and docs/node-loss.md: their commands do what the pages promise.

A mirror that takes over is in test_two_clusters.py.
"""

import re

from confluent_kafka.admin import AdminClient

from tests.kit.night import Desk, ran
from tests.kit.pages import section, type_section
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.routes import a_route
from tests.kit.topics import Given

PAGE = "disaster-recovery.md"

route = a_route(redis=True)


def event(name: str, *headers: tuple[str, bytes]) -> Given:
    return Given(name.encode(), b"k", (("message-id", name.encode()), *headers))


def values(route: PipelineUnderTest) -> list[bytes | None]:
    return [record.value for record in route.outputs()]


def test_claims_of_a_lost_store_are_rebuilt_by_the_commands_of_the_page(route, sandbox):
    route.write(event("one"), event("two"))
    ran(route)
    sandbox.redis.flush()
    type_section(Desk(route), route, PAGE, "The claim store is lost")
    route.write(event("two"), event("three"))
    ran(route)
    assert values(route) == [b"one", b"two", b"three"]


def test_lost_offsets_are_set_by_the_commands_of_the_page(route: PipelineUnderTest) -> None:
    # Dynamic members leave at once; a group with static ones cannot be deleted for a session.
    refuse = {"INPUT__START": "refuse", "GROUP__MEMBERSHIP": "dynamic"}
    route.write(*(event(f"e-{number}") for number in range(4712)))
    ran(route, **refuse | {"INPUT__START": "earliest"})
    client = AdminClient({"bootstrap.servers": route.bootstrap})
    client.delete_consumer_groups([route.app])[route.app].result(30)
    route.write(event("e-7"), event("new"))
    worker = route.worker("w-0", **refuse)
    worker.ends_with(6)
    said = type_section(Desk(route), route, PAGE, "The offsets are lost")
    shown, *_ = said.values()
    assert "Nothing was changed: add --yes" in shown
    assert route.committed() == {0: 4712}, "behind the last record that an output names"
    ran(route, **refuse)
    assert values(route)[4711:] == [b"e-4711", b"new"], "the repeat of e-7 is dropped"


def test_what_the_page_of_a_lost_node_has_people_type_answers(route):
    route.write(event("one"), event("poison", ("raise", b"1")))
    ran(route)
    for title in ("A worker's node", "A broker's node", "After any of them"):
        type_section(Desk(route), route, "node-loss.md", title)
    said = type_section(Desk(route), route, "capacity.md", "Redis")
    assert "claim-memory" in said["doctor --all"]
    memory = "Memory of a process"
    (less,) = re.findall(r"(?m)^\$ export HAPAX_(\w+)='(.+)'$", section("capacity.md", memory))
    said = type_section(Desk(route, **dict([less])), route, "capacity.md", memory)
    assert "settings are fine" in said["config check"]


def test_the_pattern_of_the_page_finds_every_key_of_the_app_and_no_other(route, sandbox, redis_url):
    """``redis-cli`` is not on each machine: its pattern is used through the client."""
    from redis import Redis  # noqa: PLC0415 - only here

    pattern = section(PAGE, "A mirror takes over").partition("--pattern '")[2].partition("'")[0]
    assert pattern.count("orders-clean") == 1
    sandbox.redis.flush()
    route.write(event("one"))
    ran(route)
    with Redis.from_url(redis_url) as redis:
        assert list(redis.scan_iter(pattern)) == []
        own = set(redis.scan_iter(pattern.replace("orders-clean", route.app), count=10_000))
        assert own == set(redis.scan_iter("hapax*", count=10_000))
        assert len(own) > 2
