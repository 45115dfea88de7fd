"""Claims around real workers: ids of every kind, owners, and a store that is lost or evicts."""

import json
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from hapax.core.records import Coordinates
from hapax.kafka.read import claim_owners
from hapax.kafka.read.claim_owners import KafkaOwners
from hapax.kafka.read.range_reader import RangeFetch
from hapax.sandbox import Sandbox
from hapax.sandbox.servers import Redis
from hapax.settings import load_settings
from tests.kit.at_work import await_told
from tests.kit.behind import COMPACTED
from tests.kit.claim_stores import admin, redis_server
from tests.kit.managed_process import WorkerProcess
from tests.kit.night import Desk, ran
from tests.kit.pipeline_under_test import Done, PipelineUnderTest, header, source, values
from tests.kit.probes import free_port, ready
from tests.kit.routes import a_route
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given, produce, read_back
from tests.kit.waiting import await_

# -- Ids of every kind: twins are dropped, and nothing else is -----------------------------


def sent(event_id: bytes, value: bytes, *more: tuple[str, bytes]) -> Given:
    return Given(value, headers=(("message-id", event_id), *more))


@pytest.fixture(scope="module")
def identified(sandbox, tmp_path_factory):
    route = PipelineUnderTest(
        sandbox,
        tmp_path_factory.mktemp("identified"),
        DEDUP__REDIS_URL=sandbox.redis_url,
        DEDUP__ID="header:message-id,json:/order/id",
    )
    route.create()
    ill = ("raise", b"")
    route.write(
        sent(b"x", b'"first"'),
        sent(b"x", b'"its twin"'),
        b'{"order": {"id": "x"}}',  # the same text, but of another source
        b'{"order": {"id": "x"}, "twin": 1}',
        b'{"order": {"id": 17}}',
        b'{"order": {"id": "17"}, "twin": 1}',
        b'{"order": {}}',
        b'{"order": {}}',
        b"not JSON",
        sent(b"p", b'"ill"', ill),  # 9: owner of p becomes a dead letter
        sent(b"p", b'"twin of the ill"'),
        sent(b"p", b'"replayed"', ("hapax-replay-of", f"{route.source}/0/9".encode())),
        sent(b"x", b'"replay of a stranger"', ("hapax-replay-of", b"other/0/1")),
        sent(b"q", b'"replay of nothing"', ("hapax-replay-of", b"nonsense")),
        sent(b"r", b'"beyond all types"', ("hapax-replay-of", b"t/99999999999/1")),
        sent(b"s", b'"of ours, beyond"', ("hapax-replay-of", f"{route.source}/0/{2**63}".encode())),
    )
    yield Done(route, route.run_to_end())
    route.close()


@pytest.mark.row("R10")
def test_twins_are_dropped_within_their_id_source_and_nothing_else_is(identified):
    assert values(identified.route.outputs()) == [
        b'"first"',
        b'{"order": {"id": "x"}}',
        b'{"order": {"id": 17}}',
        b'{"order": {}}',
        b'{"order": {}}',
        b'"replayed"',
    ]
    assert identified.route.committed() == {0: 16}


def test_outputs_carry_the_id_that_was_found(identified):
    ids = [header(record, "hapax-id") for record in identified.route.outputs()]
    no_id = [f"{identified.route.source}/0/{offset}" for offset in (6, 7)]
    assert ids == ["x", "x", "17", *no_id, "p"]


def test_what_cannot_be_identified_is_a_dead_letter_that_says_why(identified):
    dead = {source(record): header(record, "hapax-error") for record in identified.route.dead()}
    assert dead.keys() == {8, 9, 12, 13, 14, 15}
    assert "JSON" in dead[8]
    assert "the record says so" in dead[9]
    assert "hapax-replay-of must name a record of HAPAX_INPUT__TOPICS" in dead[12]
    for offset in (13, 14, 15):
        assert "hapax-replay-of must be topic/partition/offset" in dead[offset]


def test_twins_and_records_without_id_are_counted(identified):
    assert identified.sum("duplicates") == 4
    # Two without an id, one whose id could not be told, four replays of what is no record of ours.
    assert identified.sum("without_id") == 7


def test_a_replay_does_not_carry_the_marks_of_its_death(identified):
    names = [name for name, _ in identified.outputs_of(11)[0].headers]
    assert names == ["message-id", "hapax-id", "hapax-source"]


def test_a_key_that_is_an_id_drops_twins_and_no_key_drops_nothing(route_of, sandbox):
    route = route_of(DEDUP__REDIS_URL=sandbox.redis_url, DEDUP__ID="key")
    keys = (b"k", b"k", None, None, b"", b"", b"\xff\x00", b"\xff\x00", b"l")
    route.write(*(Given(b"%d" % number, key) for number, key in enumerate(keys)))
    route.run_to_end()
    assert values(route.outputs()) == [b"0", b"2", b"3", b"4", b"5", b"6", b"8"]


BATCH, BATCHES = 50, 60


@pytest.mark.row("R10")
def test_under_a_backlog_the_first_of_two_records_with_one_id_has_the_effect(route_of, sandbox):
    """The second stands in the next batch, whose claim is under way at the same time."""
    route = route_of(
        DEDUP__REDIS_URL=sandbox.redis_url,
        DEDUP__ID="header:message-id",
        TRANSACTION__RECORDS_MAX=str(BATCH),
    )
    last: list[bytes] = []
    ids: list[bytes] = []
    for number in range(BATCHES):
        twins = last[::5]
        last = [b"%d/%d" % (number, at) for at in range(BATCH - len(twins))]
        ids += last
        route.write(
            *(sent(each, each) for each in last), *(sent(each, each + b" again") for each in twins)
        )
    route.run_to_end()
    assert values(route.outputs()) == ids


# -- Change data and CloudEvents as they come: what names an event, and what only seems to -


def change(row: int, lsn: int, op: str, *, snapshot: bool = False) -> Given:
    """Return a change as Debezium 3.6.1 wrote it for PostgreSQL: no field is an id of its own."""
    image = {"id": row, "name": f"n{row}"}
    value = {
        "before": image if op == "d" else None,
        "after": None if op == "d" else image,
        "source": {
            "connector": "postgresql",
            "snapshot": "true" if snapshot else "false",
            "sequence": f'[null,"{lsn}"]',
            "table": "orders",
            "txId": 744 + lsn,
            "lsn": lsn,
        },
        "transaction": None,
        "op": op,
    }
    return Given(json.dumps(value).encode(), b'{"id":%d}' % row)


CHANGES = [
    *(change(row, 100, "r", snapshot=True) for row in (1, 2, 3, 4)),
    *(change(row, 200, "c") for row in (5, 6, 7)),  # of one COPY
    *(change(4, 300, "d"), Given(None, b'{"id":4}'), change(40, 300, "c")),  # a key that changed
    *(change(row, 400 + row, "c") for row in (8, 9, 10)),
]


def piped(sandbox: Sandbox, folder: Path, ids: str, **more: Any) -> PipelineUnderTest:
    route = PipelineUnderTest(
        sandbox, folder, DEDUP__REDIS_URL=sandbox.redis_url, DEDUP__ID=ids, **more
    )
    route.create()
    return route


@pytest.mark.row("R10")
def test_changes_of_one_lsn_leave_once_each_by_an_id_of_several_parts(sandbox, tmp_path):
    route = piped(sandbox, tmp_path, "json:/source/lsn+json:/op+key")
    route.write(*CHANGES, *CHANGES)  # a connector that was restarted sends them again
    done = Done(route, route.run_to_end())
    tombstones = [8, 8 + len(CHANGES)]
    assert [source(one) for one in route.outputs()] == [*range(len(CHANGES)), tombstones[1]]
    assert done.sum("duplicates") == len(CHANGES) - 1
    assert done.sum("without_id") == len(tombstones)
    assert '"id_on_different_keys"' not in done.worker.text()
    assert '"ids_missing"' not in done.worker.text()
    route.close()


@pytest.mark.parametrize("fast", ["off", "auto"])
def test_an_id_that_events_share_is_named_at_the_first_of_them(sandbox, tmp_path, fast):
    route = piped(sandbox, tmp_path, "json:/source/lsn", FAST=fast)
    route.write(*CHANGES)
    worker = route.run_to_end()
    (line,) = [one for one in worker.text().splitlines() if '"id_on_different_keys"' in one]
    told = json.loads(line)
    assert (told["record"], told["other"]) == (f"{route.source}/0/0", f"{route.source}/0/1")
    assert "HAPAX_DEDUP__ID" in told["hint"]
    route.close()


def test_most_records_without_an_id_are_told_once(sandbox, tmp_path):
    route = piped(sandbox, tmp_path, "json:/source/id", TRANSACTION__RECORDS_MAX="5")
    route.write(*CHANGES, *CHANGES)
    (line,) = [one for one in route.run_to_end().text().splitlines() if '"ids_missing"' in one]
    told = json.loads(line)
    assert told["records"] == told["of"] >= 10
    route.close()


# -- Events whose first copy was claimed, never committed, and can no longer be read -------

uncreated = a_route(created=False, redis=True, partitions=2)


def event(name: str, key: bytes = b"k", partition: int = 0) -> Given:
    return Given(name.encode(), key, (("message-id", name.encode()),), partition)


def claimed_then_killed(route: PipelineUnderTest, name: str, **settings: str) -> None:
    """Let a worker claim an event and kill it before it commits."""
    desk = Desk(route)
    worker = route.worker("w-0", TRANSFORM="tests.kit.orders:hang", **settings)
    await_(
        lambda: desk.type("claims", "show", name).exit_code == 0, 60, lambda: worker.text()[-3000:]
    )
    worker.kill()
    assert not route.committed()[0]


def claimed_in_another_topic(route: PipelineUnderTest, sandbox: Sandbox) -> None:
    route.create()
    other = f"{route.app}-in-2"
    sandbox.create_topic(other, 1)
    produce(route.bootstrap, other, event("e"))
    claimed_then_killed(route, "e", INPUT__TOPICS=f"{route.source},{other}")


@pytest.mark.long
@pytest.mark.parametrize("records_max", ["10000", "1"])
def test_on_a_compacted_topic_the_copy_that_survives_the_cleaner_has_the_effect(
    uncreated, records_max
):
    """Also when records between the two copies are committed before the second is reached."""
    uncreated.create(source=COMPACTED)
    uncreated.write(event("e"))
    claimed_then_killed(uncreated, "e")
    uncreated.write(event("between", b"between"))
    uncreated.write(event("e"))  # the sender repeats it: the same key, so the first copy is cleaned

    def cleaned() -> bool:
        uncreated.write(event("other", b"other", 0))  # rolls segments
        return read_back(uncreated.bootstrap, uncreated.source)[0].offset > 0

    await_(cleaned, 90, lambda: str(read_back(uncreated.bootstrap, uncreated.source)))
    worker = uncreated.run_to_end(TRANSACTION__RECORDS_MAX=records_max)
    assert [record.value for record in uncreated.outputs()] == [b"between", b"e", b"other"]
    assert '"claims_taken_over"' in worker.text()


def test_a_look_up_keeps_owners_alone_reads_over_gaps_and_gives_its_thread_back(
    uncreated, monkeypatch
):
    uncreated.create()
    uncreated.write(*[Given(b"%d" % at, partition=0) for at in range(100_002)])
    poll, read = RangeFetch.poll, list[Any]()
    monkeypatch.setattr(RangeFetch, "poll", lambda *by: read.__iadd__(got := poll(*by)) and got)
    monkeypatch.setattr(claim_owners, "LOOK_S", 0.0)
    left = {Coordinates(uncreated.source, 0, at) for at in (*range(0, 20_000, 90), 100_001)}
    settings, turns = load_settings(uncreated.environment()), []
    with closing(KafkaOwners(settings, watch=lambda _call: nullcontext())) as owners:
        while left:
            batch = owners.records(left)
            end = batch.next.get((uncreated.source, 0), 100_002)
            looked = sorted(one for one in left if one.offset < end)
            assert [record.coordinates for record in batch.records] == looked
            left -= set(looked)
            turns.append(len(read))
            read.clear()
    assert max(turns) <= 2 * claim_owners.AT_ONCE
    assert sum(turns) < 40_000


def test_an_event_that_comes_again_in_the_topic_that_is_left_has_its_effect(uncreated, sandbox):
    claimed_in_another_topic(uncreated, sandbox)
    uncreated.write(event("e"))
    uncreated.run_to_end()
    assert [record.value for record in uncreated.outputs()] == [b"e"]


def test_a_task_on_spark_takes_the_claim_over_as_a_worker_does(uncreated, sandbox):
    claimed_in_another_topic(uncreated, sandbox)
    uncreated.write(event("e", partition=1))
    driver = uncreated.start(SparkProcess, "s-0", STOP_AFTER__AT_END="true")
    driver.ends_with(0)
    assert [record.value for record in uncreated.outputs()] == [b"e"]
    assert '"claims_taken_over"' in driver.text()


# -- Redis begins to evict while the service runs: it is named, waited for, and over by itself.


plain = a_route()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Redis]:
    with redis_server(tmp_path / "redis") as server:
        yield server


def plain_event(name: str) -> Given:
    return Given(name.encode(), None, (("message-id", name.encode()),))


def ready_and_why(port: int) -> tuple[bool, str]:
    answers, reasons = ready(port)
    return answers, "; ".join(map(str, reasons))


def await_held(port: int, worker: WorkerProcess) -> None:
    """Wait until the worker says why it holds: the policy and what to set."""

    def held() -> bool:
        answers, why = ready_and_why(port)
        words = ("the claim store deletes claims", "maxmemory-policy allkeys-lru", "noeviction")
        return not answers and all(word in why for word in words)

    await_(held, 60, lambda: f"{ready_and_why(port)} {worker.text()[-3000:]}")


@pytest.mark.parametrize("kind", [WorkerProcess, SparkProcess])
def test_a_store_that_begins_to_evict_is_named_and_held_for_until_it_keeps_claims_again(
    plain: PipelineUnderTest, store: Redis, kind: type[WorkerProcess]
):
    """By an idle process first; then records come, of which one is a duplicate."""
    port = free_port()
    worker = plain.start(
        kind,
        "w-0",
        TRANSFORM="tests.kit.looking:obey",
        DEDUP__REDIS_URL=store.url,
        TELEMETRY__PORT=str(port),
    )
    plain.write(plain_event("one"))
    plain.await_outputs(1)
    plain.await_lag_0()
    admin(store).config_set("maxmemory-policy", "allkeys-lru")
    await_held(port, worker)
    plain.write(plain_event("one"), plain_event("two"))
    await_told(worker, "claims_evicted")
    [line] = worker.lines("claims_evicted")
    assert (line["level"], line["keys"]) == ("error", 0)
    await_held(port, worker)
    assert len(plain.outputs()) == 1
    admin(store).config_set("maxmemory-policy", "noeviction")
    plain.await_outputs(2)
    plain.await_lag_0()
    assert [record.value for record in plain.outputs()] == [b"one", b"two"]
    await_(lambda: ready(port)[0], 60, worker.text)
    assert worker.terminate() == 0


def test_a_redis_that_comes_back_with_another_policy_is_not_trusted(
    plain: PipelineUnderTest, store: Redis
):
    port = free_port()
    worker = plain.worker(DEDUP__REDIS_URL=store.url, TELEMETRY__PORT=str(port))
    plain.write(plain_event("one"))
    plain.await_outputs(1)
    store.kill()
    plain.write(plain_event("one"), plain_event("two"))
    await_(lambda: bool(worker.lines("claims_unavailable")), 60, worker.text)
    store.command = [*store.command, "--maxmemory-policy", "allkeys-lru"]
    store.start()
    await_held(port, worker)
    assert len(plain.outputs()) == 1
    admin(store).config_set("maxmemory-policy", "noeviction")
    plain.await_outputs(2)
    assert [record.value for record in plain.outputs()] == [b"one", b"two"]


# -- ``hapax claims`` ----------------------------------------------------------------------

two_partitions = a_route(redis=True, partitions=2)


def event_with(name: str, *headers: tuple[str, bytes], partition: int = 0) -> Given:
    return Given(name.encode(), b"k", (("message-id", name.encode()), *headers), partition)


def owner(desk: Desk, name: str) -> str:
    (claim,) = desk.ask("claims", "show", name)["claims"]
    assert claim["id_source"] == "header:message-id"
    assert 0 < claim["life_ms"] <= 2 * 86_400_000
    return str(claim["owner"])


def test_claims_of_a_lost_redis_are_rebuilt_and_twins_are_dropped_as_before(
    two_partitions, sandbox
):
    two_partitions.write(
        event_with("one"),
        event_with("two", ("do", b'[{"value": "a"}, {"value": "b"}]')),
        event_with("poison", ("raise", b"1")),
        event_with("filtered", ("do", b"[]")),
        Given(b"without", b"k", (), 1),
    )
    ran(two_partitions)
    desk = Desk(two_partitions)
    before = {name: owner(desk, name) for name in ("one", "two", "poison")}
    written = len(two_partitions.outputs())
    sandbox.redis.flush()
    assert desk.type("claims", "show", "one").exit_code == 1
    told = desk.ask("claims", "rebuild", "--yes")
    assert told == {
        "records": 5,
        "older": 0,
        "claimed": 4,
        "elsewhere": 0,
        "untold": 0,
        "without_id": 1,
        "foreign": 0,
    }
    assert desk.ask("claims", "rebuild", "--yes") == told
    assert {name: owner(desk, name) for name in before} == before
    assert desk.type("claims", "show", "filtered").exit_code == 1
    two_partitions.write(*(event_with(name, partition=1) for name in before))
    ran(two_partitions)
    assert len(two_partitions.outputs()) == written
    assert "filtered are not known" in desk.type("claims", "rebuild", "--yes").stdout


def test_a_replay_does_not_take_the_claim_of_its_original(two_partitions, sandbox):
    two_partitions.write(event_with("poison", ("raise", b"1")))
    ran(two_partitions)
    desk = Desk(two_partitions)
    desk.ask("dead-letters", "replay", "--yes")
    ran(two_partitions, TRANSFORM=None)
    sandbox.redis.flush()
    told = desk.ask("claims", "rebuild", "--yes")
    assert (told["claimed"], told["elsewhere"], told["foreign"]) == (1, 1, 0)
    assert owner(desk, "poison") == f"{two_partitions.source}/0/0"


def test_what_is_older_than_ids_are_remembered_is_not_claimed(two_partitions, sandbox):
    old = Given(b"old", b"k", (("message-id", b"old"),), 0, 1_700_000_000_000)
    two_partitions.write(old, event_with("new"))
    ran(two_partitions)
    sandbox.redis.flush()
    desk = Desk(two_partitions)
    told = desk.ask("claims", "rebuild", "--yes")
    assert told["claimed"] == 1
    assert desk.type("claims", "show", "old").exit_code == 1
    told = desk.ask("claims", "rebuild", "--yes", "--since", "2023-01-01T00:00:00Z")
    assert told["claimed"] == 2
