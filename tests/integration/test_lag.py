"""Lag: of any group, of readers of the outputs, and of a worker, which reaches 0 and stays."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner, Result

from hapax.cluster.cluster_state import Right
from hapax.commands.tree import app
from hapax.kafka.read.lag_probe import ReaderLagProbe
from hapax.kafka.read.range_reader import count_records
from hapax.operations.offsets import READ_MAX
from hapax.sandbox import Sandbox
from tests.kit.at_work import delete_topic
from tests.kit.behind import MANY, SITUATIONS, Behind, Stage, counted_by_java, some
from tests.kit.claim_stores import redis_server
from tests.kit.pipeline_under_test import PipelineUnderTest, metric
from tests.kit.probes import ask, free_port, ready
from tests.kit.raw_offsets import commit_raw
from tests.kit.routes import a_route
from tests.kit.secured import SCRAM_PASSWORD, login
from tests.kit.topics import Given, produce_aborted, produce_committed, produce_open
from tests.kit.waiting import await_

# -- ``hapax lag``: what it says of any group is what a reader of Java's client counts -----

UNPLACED = {"no-offset", "recreated"}
"""The offset does not say where the reader continues, so its records are none, or all."""
OF_ANOTHER = "of-another-user"
MECHANISM = "SCRAM-SHA-256"


class Scene(NamedTuple):
    """How a broker is reached, and what Java counted there, by topic and partition."""

    settings: dict[str, str]
    java: dict[tuple[str, int], Behind]


@pytest.fixture(scope="module")
def told(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with ExitStack() as stack:
        stage = Stage(sandbox, stack)
        for topic, make in SITUATIONS.items():
            make(stage, topic)
        servers = sandbox.bootstrap_servers
        java = counted_by_java(
            ((topic, topic) for topic in SITUATIONS),
            {"bootstrap.servers": servers},
            tmp_path_factory.mktemp("java"),
        )
        yield Scene({"HAPAX_KAFKA__BOOTSTRAP_SERVERS": servers}, java)


class Guest(NamedTuple):
    """A user of a guarded broker that has no rights at first, and a group that is not its own."""

    sandbox: Sandbox
    name: str
    group: str
    settings: dict[str, str]

    def granted(self, *rights: tuple[str, str, str]) -> None:
        self.sandbox.rights.allow(self.name, *(Right(*words, "is read") for words in rights))

    def properties(self) -> dict[str, str]:
        """Return those of Java's client."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        password = SCRAM_PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
        jaas = f'{module} required username="{self.name}" password="{password}";'
        return {
            "bootstrap.servers": self.settings["HAPAX_KAFKA__BOOTSTRAP_SERVERS"],
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": jaas.replace("\\", "\\\\"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.sandbox.guard.authority.ca_file),
        }


@pytest.fixture
def guest(guarded: Sandbox, unique: Callable[[str], str]) -> Guest:
    name, group = unique("guest"), unique(OF_ANOTHER)
    guarded.rights.set_password(name, SCRAM_PASSWORD, MECHANISM)
    way = login(guarded, MECHANISM, USERNAME=name, PASSWORD=SCRAM_PASSWORD)
    with ExitStack() as stack:
        SITUATIONS["aborted-tail"](Stage(guarded, stack), group)
    return Guest(guarded, name, group, {f"HAPAX_{key}": text for key, text in way.items()})


def lag(settings: dict[str, str], *words: str) -> Result:
    return CliRunner().invoke(app, ["lag", *words], env=settings)


def figures(settings: dict[str, str], *words: str) -> dict[str, Any]:
    done = lag(settings, *words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def await_refusal(guest: Guest, words: str, *more: str) -> None:
    """Wait until the command leaves with 3 and these words: rights come some milliseconds late."""

    def refused() -> bool:
        done = lag(guest.settings, guest.group, *more)
        return (done.exit_code, words in done.output) == (3, True)

    await_(refused, 30, lambda: lag(guest.settings, guest.group, *more).output)


@pytest.fixture
def scene(request: pytest.FixtureRequest, situation: str, tmp_path: Path) -> tuple[str, Scene]:
    """Return the group, which has the name of its topic, and the broker."""
    if situation != OF_ANOTHER:
        return situation, request.getfixturevalue("told")
    guest: Guest = request.getfixturevalue("guest")
    guest.granted(("GROUP", guest.group, "DESCRIBE"), ("TOPIC", guest.group, "READ"))
    java = counted_by_java([(guest.group, guest.group)], guest.properties(), tmp_path)
    return guest.group, Scene(guest.settings, java)


@pytest.mark.parametrize("situation", [*SITUATIONS, OF_ANOTHER])
def test_a_group_is_as_far_behind_as_a_reader_of_javas_client_counts(situation, scene):
    group, known = scene
    found = figures(known.settings, group, "--topic", group, "--exact")
    counted = {
        (one["topic"], one["partition"]): Behind(
            one["records_max"], one["aborted"], one["markers_or_removed"], one["open"]
        )
        for one in found["partitions"]
    }
    expected = {place: one for place, one in known.java.items() if place[0] == group}
    assert counted == expected
    total = sum(one.records for one in expected.values())
    assert found["records_max"] == total
    assert found["records_min"] == (0 if situation in UNPLACED else total)


def test_more_than_is_read_at_once_is_a_range_with_a_sentence(told):
    found = figures(told.settings, "many-records")
    assert found["records_min"] == READ_MAX
    assert found["records_max"] == MANY + 11  # ten aborted ones and a marker might be records
    shown = lag(told.settings, "many-records").stdout
    assert "At least 500,000 records, at most 1,000,011" in shown
    assert "--exact" in shown


def test_without_a_topic_all_are_shown_in_which_the_group_has_an_offset(told):
    found = figures(told.settings, "several-partitions")
    assert [(one["topic"], one["committed"]) for one in found["partitions"]] == [
        ("several-partitions", offset) for offset in (3, 0, 12, None)
    ]
    done = lag(told.settings, "no-offset")
    assert done.exit_code == 3
    assert "group no-offset has no committed offset in any topic" in done.output


def test_a_right_that_is_missing_is_named(guest):
    await_refusal(guest, f"grant DESCRIBE on group {guest.group}")
    guest.granted(("GROUP", guest.group, "DESCRIBE"))
    await_refusal(guest, f"group {guest.group} has no committed offset in any topic")
    await_refusal(guest, f"topic {guest.group} does not exist", "--topic", guest.group)
    guest.granted(("TOPIC", guest.group, "DESCRIBE"))
    await_refusal(guest, f"grant READ on topic {guest.group}")


# -- What other groups have not read, as a metric: counted from look to look on a real broker.


PLENTY = 100_000


@pytest.fixture
def stage(sandbox) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(sandbox, stack)


@pytest.fixture
def read(monkeypatch) -> list[int]:
    counts: list[int] = []

    def counted(queries: Any, isolation: Any, known: Any, ends: Any, **how: Any) -> Any:
        counts.append(sum(ends[where] - one.end for where, one in known.items()))
        return count_records(queries, isolation, known, ends, **how)

    monkeypatch.setattr("hapax.kafka.read.lag_probe.count_records", counted)
    return counts


def probe_of(stage: Stage, topic: str) -> ReaderLagProbe:
    return ReaderLagProbe({"bootstrap.servers": stage.servers, "group.id": topic}, topic)


def seen(probe: ReaderLagProbe, offsets_max: int = PLENTY) -> list[tuple[int, int, int]]:
    """Return of each partition the least and the most that is left, and what is open."""
    return [(one.records_min, one.records_max, one.undecided) for one in probe.look(offsets_max)]


def test_a_look_reads_what_is_new_and_what_was_read_is_known(stage, unique, read):
    topic = unique("read")
    stage.create(topic)
    stage.committed(topic, 50)
    stage.aborted(topic, 200)
    stage.commit(topic, {0: 0})
    probe = probe_of(stage, topic)
    for offset, left in ((0, 50), (0, 50), (20, 30), (51, 0), (252, 0)):
        stage.commit(topic, {0: offset})
        assert seen(probe) == [(left, left, 0)]
    assert read == [252, 0, 0, 0, 0]
    stage.commit(topic, {0: 45})  # back
    assert seen(probe) == [(5, 5, 0)]
    stage.committed(topic, 3)
    stage.opened(topic, 4)
    assert seen(probe) == [(8, 8, 4)]
    assert read[5:] == [252 - 45, 4]


def test_a_look_reads_no_more_than_it_may_and_the_range_narrows(stage, unique):
    topic = unique("long")
    stage.create(topic)
    stage.committed(topic, 1000)
    stage.commit(topic, {0: 0})
    probe = probe_of(stage, topic)
    found = [seen(probe, 400) for _ in range(3)]
    assert found == [[(400, 1001, 0)], [(800, 1001, 0)], [(1000, 1000, 0)]]


def test_nothing_is_known_any_more_of_a_topic_that_was_recreated(stage, unique):
    topic = unique("recreated")
    stage.create(topic)
    stage.committed(topic, 30)
    stage.commit(topic, {0: 5})
    probe = probe_of(stage, topic)
    assert seen(probe) == [(25, 25, 0)]
    delete_topic(stage.servers, topic)
    stage.create(topic)
    stage.committed(topic, 10)
    stage.aborted(topic, 6)
    await_(lambda: seen(probe) == [(0, 10, 0)], 30, lambda: str(seen(probe)))
    stage.commit(topic, {0: 5})
    assert seen(probe) == [(5, 5, 0)]


def lags(port: int, group: str) -> dict[str, list[float]]:
    """Return by metric its values for a group, in the order of partitions; none: no series."""
    try:
        lines = ask(port, "/metrics")[1].splitlines()
    except OSError:
        return {}
    found: dict[str, list[float]] = {}
    for line in sorted(lines):
        if line.startswith("hapax_reader_lag_") and f'group="{group}"' in line:
            name, _, value = line.partition("{")
            found.setdefault(name, []).append(float(value.rpartition(" ")[2]))
    return found


def test_one_worker_reports_what_readers_of_its_outputs_have_not_read(route_of):
    ports = [free_port(), free_port()]
    route = route_of(2, TELEMETRY__READERS="billing", TELEMETRY__LAG_INTERVAL="1s")
    for number, port in enumerate(ports):
        route.worker(f"w-{number}", TELEMETRY__PORT=str(port))
    route.write(*[b"%d" % number for number in range(20)])
    ends = {0: 0, 1: 0}

    def shown() -> list[dict[str, list[float]]]:
        return [one for one in (lags(port, "billing") for port in ports) if one]

    def told(records: list[int], most: list[int], undecided: int) -> bool:
        return shown() == [
            {
                "hapax_reader_lag_records": records,
                "hapax_reader_lag_records_max": most,
                "hapax_reader_lag_open": [undecided, 0],
            }
        ]

    await_(lambda: len(route.outputs()) == 20, 60, lambda: str(shown()))
    counts = [sum(one.partition == number for one in route.outputs()) for number in ends]
    await_(lambda: told([0, 0], counts, 0), 60, lambda: f"{counts} {shown()}")
    # As most clients do: the offset after the last record, before its marker.
    last = {one.partition: one.offset + 1 for one in route.outputs()}
    commit_raw(
        route.bootstrap, "billing", route.target, {n: (at, -1, "") for n, at in last.items()}
    )
    await_(lambda: told([0, 0], [0, 0], 0), 60, lambda: str(shown()))
    with produce_open(route.bootstrap, route.target, *some(3)):
        await_(lambda: told([0, 0], [0, 0], 3), 60, lambda: str(shown()))
    await_(lambda: told([0, 0], [0, 0], 0), 60, lambda: str(shown()))


# -- Lag reaches 0 on transactional input, stays there, and costs nothing once it has ------

IDLE_S = 4.0
route = a_route(partitions=2, TELEMETRY__LOG_LEVEL="debug")


@pytest.fixture
def port():
    return free_port()


def both(value: bytes) -> list[Given]:
    return [Given(value, partition=0), Given(value, partition=1)]


def _lag_told(port: int) -> float | None:
    """Return the lag among the metrics; None before the brokers have told it for the first time."""
    exposition = ask(port, "/metrics")[1]
    name = "hapax_consumer_lag"
    return metric(exposition, name) if f"\n{name}{{" in exposition else None


@pytest.mark.row("KAFKA-6607")
def test_lag_reaches_0_behind_aborted_records_and_idling_commits_nothing(route, port):
    produce_aborted(route.bootstrap, route.source, *both(b"never"))
    produce_committed(route.bootstrap, route.source, *both(b"1"))
    worker = route.worker(TELEMETRY__PORT=str(port))
    await_(lambda: bool(worker.lines("transaction_committed")), 20, worker.text)
    route.await_lag_0()
    # After its last transaction: what it reads in one take is committed by that transaction.
    produce_aborted(route.bootstrap, route.source, *both(b"never"))
    await_(lambda: bool(worker.lines("idle_offsets_committed")), 20, worker.text)
    route.await_lag_0()
    await_(lambda: _lag_told(port) == 0, 30, worker.text)
    ends = len(worker.lines("idle_offsets_committed"))
    time.sleep(IDLE_S)  # what is asserted is that nothing happens
    assert len(worker.lines("idle_offsets_committed")) == ends
    assert route.lag() == 0
    produce_aborted(route.bootstrap, route.source, *both(b"never"))
    route.await_lag_0()
    assert [record.value for record in route.outputs()] == [b"1", b"1"]


def test_lag_reaches_0_after_a_restart_with_nothing_to_read(route):
    produce_committed(route.bootstrap, route.source, *both(b"1"))
    first = route.worker()
    await_(lambda: bool(first.lines("transaction_committed")), 20, first.text)
    route.await_lag_0()
    first.kill()
    produce_aborted(route.bootstrap, route.source, *both(b"never"))
    second = route.worker()
    route.await_lag_0()
    second.terminate()
    third = route.worker()
    await_(lambda: bool(third.lines("partitions_assigned")), 20, third.text)
    time.sleep(IDLE_S)
    assert third.lines("idle_offsets_committed") == []
    assert route.lag() == 0


def test_lag_reaches_0_before_an_open_transaction_and_again_when_it_is_over(route, port):
    route.write(*both(b"1"))
    with produce_open(route.bootstrap, route.source, *both(b"2")) as producer:
        worker = route.worker(TELEMETRY__PORT=str(port))
        route.await_lag_0(20)
        await_(lambda: _lag_told(port) == 0, 30, worker.text)
        assert [record.value for record in route.outputs()] == [b"1", b"1"]
        producer.commit_transaction(30)
    await_(lambda: len(route.outputs()) == 4, 10, worker.text)
    route.await_lag_0()


# -- the claim store is away --------------------------------------------------------------


def outputs(route: PipelineUnderTest, unchecked: bool) -> list[bytes | None]:  # noqa: FBT001 - reads as said
    return [
        record.value
        for record in route.outputs()
        if ("hapax-unchecked" in dict(record.headers)) == unchecked
    ]


def sent(event_id: bytes) -> Given:
    return Given(event_id, b"key", headers=(("message-id", event_id),))


@pytest.mark.row("R1")
def test_while_the_claim_store_is_away_a_paused_worker_is_not_ready_and_says_why(
    route, port, tmp_path
):
    with redis_server(tmp_path / "redis") as server:
        worker = route.worker(DEDUP__REDIS_URL=server.url, TELEMETRY__PORT=str(port))
        await_(lambda: ready(port) == (True, []), 20, worker.text)
        server.kill()
        route.write(sent(b"a"), sent(b"b"))
        await_(lambda: not ready(port)[0], 10, worker.text)
        assert any("claim store" in reason for reason in ready(port)[1])
        assert ask(port, "/livez")[0] == 200
        assert route.outputs() == []
        server.start()
        server.await_ready()
        await_(lambda: ready(port) == (True, []), 10, worker.text)
        route.await_lag_0()
    assert outputs(route, unchecked=False) == [b"a", b"b"]


@pytest.mark.row("R1")
def test_while_the_claim_store_is_away_pass_goes_on_and_marks_its_outputs(route, port, tmp_path):
    with redis_server(tmp_path / "redis") as server:
        worker = route.worker(
            DEDUP__REDIS_URL=server.url, DEDUP__ON_OUTAGE="pass", TELEMETRY__PORT=str(port)
        )
        route.write(sent(b"a"), sent(b"a"), b"no id")
        route.await_outputs(2)
        server.kill()
        route.write(sent(b"a"), sent(b"b"), sent(b"b"))
        route.await_outputs(5)
        assert ready(port) == (True, [])
        assert metric(ask(port, "/metrics")[1], "hapax_records_unchecked_total") == 3
        server.start()
        server.await_ready()
        route.write(sent(b"a"), sent(b"c"))
        route.end(worker)
    assert sorted(map(bytes, filter(None, outputs(route, unchecked=False)))) == sorted(
        [b"a", b"no id", b"c"]
    )
    assert outputs(route, unchecked=True) == [b"a", b"b", b"b"]


def test_pass_starts_without_the_claim_store(route, tmp_path):
    route.write(sent(b"a"), sent(b"b"))
    with redis_server(tmp_path / "redis") as server:
        server.kill()
        worker = route.worker(DEDUP__REDIS_URL=server.url, DEDUP__ON_OUTAGE="pass")
        route.await_outputs(2)
    assert worker.lines("claims_unavailable")
    assert outputs(route, unchecked=True) == [b"a", b"b"]
