"""Outputs that a topic refuses for their key, their timestamp or their name: judged together."""

import time
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ResourceType

from hapax.core.dead_letters import dead_letter
from hapax.sandbox import Sandbox
from tests.kit.mirrors import a_mirror, an_other_cluster
from tests.kit.night import Desk
from tests.kit.orders import told
from tests.kit.pipeline_under_test import Done, PipelineUnderTest, header
from tests.kit.secured import INSTANCE, login, needed
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given, configure, read_back

RECORDS, EVERY = 200, 5
HOUR_MS = 3_600_000
COMPACT = {"cleanup.policy": "compact"}
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}
AT_ONCE: dict[str, Any] = {"DEAD_LETTER__RATE_MAX": "1", "TRANSACTION__RECORDS_MAX": "100"}

other = an_other_cluster()
mirror = a_mirror()


@pytest.fixture
def route(sandbox, tmp_path):
    made = PipelineUnderTest(sandbox, tmp_path, **AT_ONCE)
    yield made
    made.close()


def ill(number: int) -> bool:
    return number % EVERY == 3


def errors(route: PipelineUnderTest) -> set[str]:
    return {header(one, "hapax-error") for one in route.dead()}


def accounted(route: PipelineUnderTest, **settings: str | None) -> Done:
    """Let a worker do all there is; each record has its effect, and no producer was lost for it."""
    done = Done(route, route.run_to_end(**settings))
    assert [one.value for one in route.outputs()] == [
        b"%d" % number for number in range(RECORDS) if not ill(number)
    ]
    assert len(done.worker.lines("producer_rebuilt")) <= 2
    assert len(done.worker.lines("batch_aborted")) <= RECORDS // 20
    return done


@pytest.mark.parametrize("fast", ["off", "auto"])
@pytest.mark.parametrize("ahead_ms", [2 * HOUR_MS, 10**15])
def test_timestamps_that_a_topic_refuses_are_judged_together_and_the_property_is_named(
    route, ahead_ms, fast
):
    now_ms = int(time.time() * 1000)
    route.create(source=ANY_TIME, target={"message.timestamp.before.max.ms": str(HOUR_MS)})
    given = [
        Given(b"%d" % number, timestamp_ms=now_ms + number + ahead_ms * ill(number))
        for number in range(RECORDS)
    ]
    route.write(*given)
    accounted(route, FAST=fast, TRANSFORM=None)
    (error,) = errors(route)
    assert "message.timestamp.after.max.ms=3600000" in error
    assert "HAPAX_OUTPUT__TIMESTAMP=now" in error
    letters = [dead_letter(one) for one in route.dead()]
    wanted = [given[number] for number in range(RECORDS) if ill(number)]
    assert [(one.record.value, one.record.timestamp_ms) for one in letters if one] == [
        (each.value, each.timestamp_ms) for each in wanted
    ]
    assert all(abs(one.timestamp_ms - now_ms) < HOUR_MS for one in route.dead())


def test_outputs_may_have_the_time_of_writing(route):
    now_ms = int(time.time() * 1000)
    route.create(source=ANY_TIME)
    route.write(Given(b"ahead", timestamp_ms=now_ms * 1000), Given(b"early", timestamp_ms=1))
    route.run_to_end(OUTPUT__TIMESTAMP="now", TRANSFORM=None)
    assert [one.value for one in route.outputs()] == [b"ahead", b"early"]
    assert all(0 <= one.timestamp_ms - now_ms < HOUR_MS for one in route.outputs())
    assert route.dead() == []


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_records_without_a_key_for_a_compacted_topic_are_judged_together(route, guarantee):
    route.create(target=COMPACT, dead_letters=COMPACT)
    route.write(
        *(
            Given(b"%d" % number, None if ill(number) else b"k%d" % number)
            for number in range(RECORDS)
        )
    )
    if guarantee == "exactly_once":
        accounted(route, TRANSFORM=None)
    else:
        route.run_to_end(TRANSFORM=None, GUARANTEE=guarantee)
    (error,) = errors(route)
    assert f"no key, and topic {route.target} is compacted" in error
    numbers = [number for number in range(RECORDS) if ill(number)]
    dead = route.dead()
    assert [one.value for one in dead] == [b"%d" % number for number in numbers]
    assert [one.key for one in dead] == [f"{route.source}/0/{at}".encode() for at in numbers]
    restored = [dead_letter(one) for one in dead]
    assert {one.record.key for one in restored if one} == {None}
    assert {one.truncated for one in restored if one} == {""}


def test_a_dead_letter_that_its_topic_would_refuse_is_replayed_as_the_record_was(route):
    ahead_ms = int(time.time() * 1_000_000)
    route.create(
        source=ANY_TIME,
        target=COMPACT,
        dead_letters=COMPACT,
    )
    route.write(Given(b"v", None, (("h", b"1"),), timestamp_ms=ahead_ms))
    route.run_to_end(TRANSFORM=None)
    (dead,) = route.dead()
    assert dict(dead.headers)["hapax-truncated"] == b"key=0,timestamp=%d" % ahead_ms
    assert Desk(route).ask("dead-letters", "replay", "--yes")["replayed"] == 1
    first, again = read_back(route.bootstrap, route.source)
    assert (again.key, again.value, again.timestamp_ms) == (None, b"v", ahead_ms)
    assert (first.key, first.value, first.timestamp_ms) == (None, b"v", ahead_ms)


def test_without_the_right_to_read_settings_the_property_is_named_and_no_value_is_lost(
    guarded, tmp_path, unique
):
    user, password = unique("least"), "ask-me-anything"
    guarded.rights.set_password(user, password, "SCRAM-SHA-256")
    way = login(guarded, "SCRAM-SHA-256", USERNAME=user, PASSWORD=password)
    route = PipelineUnderTest(guarded, tmp_path, **way)
    route.create(source=ANY_TIME)
    now_ms = int(time.time() * 1000)
    route.write(Given(b"late", timestamp_ms=now_ms * 1000), Given(b"fine", timestamp_ms=now_ms))
    guarded.rights.allow(user, *needed(route))
    worker = route.worker(INSTANCE, STOP_AFTER__AT_END="true", TRANSFORM=None)
    worker.ends_with(0)
    route.close()
    assert [one.value for one in route.outputs()] == [b"fine"]
    assert [one.value for one in route.dead()] == [b"late"]
    (error,) = errors(route)
    assert "INVALID_TIMESTAMP" in error
    assert "message.timestamp.after.max.ms" in error


def test_a_task_of_spark_judges_in_the_same_way(sandbox, tmp_path):
    route = PipelineUnderTest(sandbox, tmp_path, kind=SparkProcess, **AT_ONCE)
    route.create(source=ANY_TIME)
    now_ms = int(time.time() * 1000)
    route.write(
        *(
            Given(b"%d" % number, timestamp_ms=now_ms * (1000 if ill(number) else 1))
            for number in range(RECORDS)
        )
    )
    driver = route.start(SparkProcess, "s-0", TRANSFORM=None, STOP_AFTER__AT_END="true")
    driver.ends_with(0)
    route.close()
    assert [one.value for one in route.outputs()] == [
        b"%d" % number for number in range(RECORDS) if not ill(number)
    ]
    assert len(route.dead()) == sum(map(ill, range(RECORDS)))
    assert all("message.timestamp.after.max.ms" in error for error in errors(route))


def test_a_mirror_judges_in_the_same_way(mirror):
    admin = AdminClient({"bootstrap.servers": mirror.bootstrap})
    configure(admin, ResourceType.TOPIC, [mirror.source], ANY_TIME)
    now_ms = int(time.time() * 1000)
    times = [now_ms * (1000 if ill(number) else 1) for number in range(RECORDS)]
    mirror.write(*(Given(b"v", partition=0, timestamp_ms=each) for each in times))
    worker = mirror.run_to_end(DEAD_LETTER__RATE_MAX="1")
    assert len(mirror.dead()) == sum(map(ill, range(RECORDS)))
    assert len(mirror.outputs()) == RECORDS - len(mirror.dead())
    assert len(worker.lines("batch_aborted")) <= RECORDS // 20


@pytest.fixture(scope="module")
def creating():
    """A broker that creates topics by itself, as Kafka does by default."""
    with Sandbox(redis=False, properties={"auto.create.topics.enable": "true"}) as sandbox:
        yield sandbox


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_misspelt_topic_is_never_created_and_its_records_are_dead_letters(
    creating, tmp_path, guarantee
):
    route = PipelineUnderTest(creating, tmp_path, GUARANTEE=guarantee, **AT_ONCE)
    route.create()
    wrong = f"{route.target}s"
    order = told({"topic": wrong})
    given = (
        Given(b"%d" % number, headers=(order,)) if ill(number) else Given(b"%d" % number)
        for number in range(RECORDS)
    )
    route.write(*given)
    accounted(route)
    route.close()
    assert errors(route) == {
        f"Refused: topic {wrong} does not exist: correct the name, or create it"
    }
    found = AdminClient({"bootstrap.servers": route.bootstrap}).list_topics(timeout=10)
    assert wrong not in found.topics
