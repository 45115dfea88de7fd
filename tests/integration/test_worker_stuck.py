"""A set that cannot be decoded: its partition is held and named, and the others go on."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Producer

from hapax.core.offset_moves import Unreadable
from hapax.core.records import Coordinates
from hapax.kafka.read.range_reader import first_from
from hapax.sandbox import Sandbox
from tests.kit.damage import bomb, damage, reseal
from tests.kit.managed_process import WorkerProcess
from tests.kit.night import Desk
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.probes import ask, free_port
from tests.kit.routes import a_route
from tests.kit.secured import settings_of
from tests.kit.topics import Given
from tests.kit.waiting import await_

BOMB = 400 << 20
MEMORY_MAX = 400 << 20

route = a_route(partitions=2, TRANSFORM=None)


def write_set(route: PipelineUnderTest, size: int = 150, before: int = 2) -> None:
    """Write 0 and 1 to partition 0, a set of 2 to 4, and 5; one record to partition 1."""
    for value in (b"a", b"b")[:before]:
        route.write(Given(value, partition=0))
    compressed = "gzip" if size == 150 else "none"
    producer = Producer(
        {"bootstrap.servers": route.bootstrap, "compression.type": compressed, "linger.ms": 200}
    )
    producer.list_topics(timeout=30)
    for name in (b"c", b"d", b"e"):
        producer.produce(route.source, name * (size // 3), b"k", 0)
    assert producer.flush(30) == 0
    route.write(Given(b"f", partition=0), Given(b"other", partition=1))


def spoil(route: PipelineUnderTest, sandbox: Sandbox, kind: str, at: int = 2) -> None:
    """Write a set of three records that begins ``at`` 0 or 2, and spoil it."""
    write_set(route, 300_000 if kind == "bomb" else 150, before=at)
    if kind == "bomb":
        assert bomb(sandbox, route.source, 0, at, BOMB) < 100_000
        return
    damage(sandbox, route.source, 0, at, codec=kind == "codec")
    if kind != "checksum":
        reseal(sandbox, route.source, 0, at)


def values(route: PipelineUnderTest) -> set[bytes]:
    return {record.value or b"" for record in route.outputs()}


def status(port: int) -> dict[str, object]:
    found: dict[str, object] = json.loads(ask(port, "/status.json")[1])
    return found


def peak(worker: WorkerProcess) -> int:
    text = Path(f"/proc/{worker.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) << 10


@pytest.mark.parametrize("kind", ["checksum", "content", "codec", "bomb"])
def test_a_set_that_cannot_be_decoded_is_named_and_other_partitions_go_on(route, sandbox, kind):
    spoil(route, sandbox, kind)
    port = free_port()
    worker = route.worker(TELEMETRY__PORT=str(port))
    await_(lambda: bool(worker.lines("partition_stuck")), 30, worker.text)
    (line,) = worker.lines("partition_stuck")
    assert (line["partition"], line["offset"]) == (f"{route.source}/0", 2)
    await_(lambda: route.committed() == {0: 2, 1: 1}, 30, worker.text)
    code, answer = ask(port, "/readyz")
    assert code == 503
    assert f"{route.source}/0 is stuck: the set at offset 2 cannot be read" in answer
    found = status(port)
    assert (found["state"], found["ready"]) == ("stuck", False)
    series = f'hapax_partition_stuck{{offset="2",partition="0",topic="{route.source}"}} 1.0'
    assert series in ask(port, "/metrics")[1]
    route.write(Given(b"later", partition=1))
    await_(lambda: b"later" in values(route), 15, worker.text)
    route.write(Given(b"beyond", partition=0))
    await_(lambda: len(worker.lines("partition_stuck")) == 1, 1, worker.text)
    assert route.committed()[0] == 2
    assert values(route) == {b"a", b"b", b"other", b"later"}
    assert ask(port, "/livez")[0] == 200
    assert peak(worker) < MEMORY_MAX
    desk, place = Desk(route), f"{route.source}/0/2"
    command = f"hapax offsets skip {place} --dead-letter"
    (row,) = [one for one in desk.ask("offsets")["partitions"] if one["partition"] == 0]
    assert (row["stuck"]["offset"], row["committed"]) == (2, 2)
    assert "STUCK" in desk.type("offsets").stdout
    (traced,) = desk.ask("trace", f"{route.source}/0/3")["records"]
    assert traced["verdict"].startswith("STUCK: ")
    assert command in traced["undecodable"]
    told = desk.type("doctor")
    assert (told.exit_code, place in told.stdout) == (1, True), told.stdout
    assert command in " ".join(told.stdout.split())
    assert worker.terminate() == 0


@pytest.mark.parametrize("kind", ["checksum", "content", "codec", "bomb"])
def test_a_set_at_offset_0_that_cannot_be_decoded_is_named_as_at_any_other(route, sandbox, kind):
    spoil(route, sandbox, kind, at=0)
    port = free_port()
    worker = route.worker(TELEMETRY__PORT=str(port))
    await_(lambda: bool(worker.lines("partition_stuck")), 30, worker.text)
    (line,) = worker.lines("partition_stuck")
    assert (line["partition"], line["offset"]) == (f"{route.source}/0", 0)
    code, answer = ask(port, "/readyz")
    assert (code, f"{route.source}/0 is stuck: the set at offset 0" in answer) == (503, True)
    series = f'hapax_partition_stuck{{offset="0",partition="0",topic="{route.source}"}} 1.0'
    assert series in ask(port, "/metrics")[1]
    await_(lambda: values(route) == {b"other"}, 15, worker.text)
    told = Desk(route).type("doctor")
    assert (told.exit_code, f"{route.source}/0/0" in told.stdout) == (1, True), told.stdout


def test_skipped_by_the_command_the_partition_goes_on(route, sandbox):
    spoil(route, sandbox, "codec")
    worker = route.worker()
    await_(lambda: bool(worker.lines("partition_stuck")), 30, worker.text)
    (line,) = worker.lines("partition_stuck")
    await_(lambda: route.committed() == {0: 2, 1: 1}, 30, worker.text)
    assert worker.terminate() == 0
    words = str(line["skip"]).split()
    assert words[:3] == ["hapax", "offsets", "skip"]
    await_(lambda: Desk(route).type(*words[1:], "--yes").exit_code == 0, 30, worker.text)
    again = route.run_to_end()
    assert not again.lines("partition_stuck")
    assert values(route) == {b"a", b"b", b"f", b"other"}
    assert len(route.dead()) == 1


def test_a_set_that_is_whole_again_is_read(route, sandbox):
    """As when a replica that has it whole becomes the leader."""
    write_set(route)
    damage(sandbox, route.source, 0, 2, codec=True)
    port = free_port()
    worker = route.worker(TELEMETRY__PORT=str(port))
    await_(lambda: bool(worker.lines("partition_stuck")), 30, worker.text)
    damage(sandbox, route.source, 0, 2, codec=True, number=1)
    await_(lambda: b"f" in values(route), 30, worker.text)
    assert values(route) == {b"a", b"b", b"c" * 50, b"d" * 50, b"e" * 50, b"f", b"other"}
    await_(lambda: ask(port, "/readyz")[0] == 200, 10, worker.text)
    assert "hapax_partition_stuck{" not in ask(port, "/metrics")[1]


@pytest.mark.parametrize("kind", ["checksum", "content", "codec", "bomb"])
@pytest.mark.parametrize("at", [0, 2])
def test_the_end_of_a_damaged_set_is_found_from_any_of_its_offsets(route, sandbox, kind, at):
    spoil(route, sandbox, kind, at)
    settings = settings_of(route)
    for offset in range(at, at + 3):
        found = first_from(settings, Coordinates(route.source, 0, offset), at + 4)
        assert isinstance(found, Unreadable)
        assert (found.first, found.last) == (offset, at + 2)
    whole = first_from(settings, Coordinates(route.source, 0, at + 3), at + 4)
    assert isinstance(whole, tuple)
    assert whole[0].value == b"f"


def test_the_end_of_a_damaged_set_is_found_before_another_one_and_at_the_end(route, sandbox):
    firsts = [0]
    for count in (37, 1, 300):  # the last ends where the log does
        producer = Producer(
            {"bootstrap.servers": route.bootstrap, "compression.type": "gzip", "linger.ms": 500}
        )
        producer.list_topics(timeout=30)
        for _ in range(count):
            producer.produce(route.source, b"x" * 200, b"k", 0)
        assert producer.flush(30) == 0
        damage(sandbox, route.source, 0, firsts[-1])
        firsts.append(firsts[-1] + count)
    settings, end = settings_of(route), firsts[-1]
    for first, beyond in pairwise(firsts):
        for offset in {first, (first + beyond) // 2, beyond - 1}:
            found = first_from(settings, Coordinates(route.source, 0, offset), end)
            assert isinstance(found, Unreadable)
            assert (found.first, found.last) == (offset, beyond - 1)
