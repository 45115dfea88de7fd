"""A record whose response is larger than the client takes: its partition is held and named."""

import json
import os
import sys

import pytest
from confluent_kafka import Producer

from tests.kit.commands import run_captured
from tests.kit.managed_process import WorkerProcess
from tests.kit.night import Desk
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.probes import ask, free_port, ready
from tests.kit.routes import a_route
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given
from tests.kit.waiting import await_

LARGE = 3_000_000
SMALL_CLIENT = json.dumps({"receive.message.max.bytes": 2_000_000, "fetch.max.bytes": 1_000_000})
TAKES_LARGE = {"max.message.bytes": "4000000"}

route = a_route(created=False, partitions=2)


def filled(route: PipelineUnderTest, first: int) -> None:
    """Write a large record at this offset of partition 0, and small ones around it."""
    route.create(source=TAKES_LARGE, target=TAKES_LARGE)
    producer = Producer({"bootstrap.servers": route.bootstrap, "message.max.bytes": 4_000_000})
    for number in range(first):
        producer.produce(route.source, b"before %d" % number, partition=0)
    producer.flush(30)
    producer.produce(route.source, os.urandom(LARGE), partition=0)
    producer.flush(30)
    producer.produce(route.source, b"after", partition=0)
    producer.produce(route.source, b"beside", partition=1)
    assert producer.flush(30) == 0


def found_by_doctor(route: PipelineUnderTest) -> dict[str, str]:
    words = [sys.executable, "-m", "hapax", "doctor", "--json"]
    done = run_captured(words, env=route.environment(KAFKA__PROPERTIES=SMALL_CLIENT))
    findings = json.loads(done.stdout)["findings"]
    return {one["check"]: one["saw"] for one in findings if one["verdict"] == "FAIL"}


@pytest.mark.parametrize(
    ("kind", "first"), [(WorkerProcess, 1), (WorkerProcess, 0), (SparkProcess, 1)]
)
def test_a_record_larger_than_the_client_takes_holds_its_partition_alone_and_is_named(
    route: PipelineUnderTest, kind: type[WorkerProcess], first: int
):
    filled(route, first)
    port = free_port()
    worker = route.start(
        kind,
        "w-0",
        TRANSFORM=None,
        TELEMETRY__PORT=str(port),
        KAFKA__PROPERTIES=SMALL_CLIENT,
    )
    await_(lambda: bool(worker.lines("partition_stuck")), 60, worker.text)
    [line] = worker.lines("partition_stuck")
    assert (line["partition"], line["offset"]) == (f"{route.source}/0", first)
    assert "receive.message.max.bytes=2000000" in str(line["reason"])
    size = int(str(line["reason"]).split(" bytes")[0].split()[-1])
    assert LARGE < size < LARGE + 1000

    is_ready, reasons = ready(port)
    assert not is_ready
    assert f"{route.source}/0 is stuck: the set at offset {first} cannot be read" in str(reasons)
    _, metrics = ask(port, "/metrics")
    assert (
        f'hapax_partition_stuck{{offset="{first}",partition="0",topic="{route.source}"}} 1.0'
        in metrics
    )

    route.write(Given(b"late", partition=1))
    route.await_outputs(first + 2)
    values = {record.value for record in route.outputs()}
    assert {b"beside", b"late"} <= values
    assert b"after" not in values
    if kind is WorkerProcess and first:
        found = found_by_doctor(route)
        assert "receive.message.max.bytes=2000000" in found["fetch-size"]
        assert "receive.message.max.bytes=2000000" in found["undecodable"]
    assert worker.terminate() == 0


def test_it_is_passed_by_a_larger_property_or_by_hand(route: PipelineUnderTest):
    filled(route, 1)
    worker = route.worker(TRANSFORM=None, KAFKA__PROPERTIES=SMALL_CLIENT)
    await_(lambda: bool(worker.lines("partition_stuck")), 60, worker.text)
    route.await_outputs(2)
    assert worker.terminate() == 0
    desk = Desk(route, KAFKA__PROPERTIES=SMALL_CLIENT)
    (row,) = [one for one in desk.ask("offsets")["partitions"] if one["partition"] == 0]
    assert (row["stuck"]["offset"], row["committed"]) == (1, 1)
    desk.ask("offsets", "skip", f"{route.source}/0/1", "--dead-letter", "--yes")
    [dead] = route.dead()
    why = dict(dead.headers)["hapax-error"]
    assert why is not None
    assert b"receive.message.max.bytes=2000000" in why

    large = Producer({"bootstrap.servers": route.bootstrap, "message.max.bytes": 4_000_000})
    large.produce(route.source, os.urandom(LARGE), partition=1)
    assert large.flush(30) == 0
    route.run_to_end(TRANSFORM=None)
    sizes = sorted(len(record.value or b"") for record in route.outputs())
    assert sizes == [5, 6, 8, LARGE]
