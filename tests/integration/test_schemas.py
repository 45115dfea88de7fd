"""Schemas from a registry, around a real worker: what it decodes, and what its outages cost."""

import time

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.kit.at_work import await_told
from tests.kit.avro_orders import ORDER, WIDER, avro, avro_route, totals
from tests.kit.proof import at_length
from tests.kit.schema_registry import RegistryDouble
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given


@pytest.fixture
def registry():
    with RegistryDouble() as registry:
        yield registry


@pytest.fixture
def route(sandbox, tmp_path, registry):
    route = avro_route(sandbox, tmp_path, registry)
    yield route
    route.close()


@pytest.mark.rounds
@pytest.mark.parametrize(
    "function",
    [
        "price",
        pytest.param("price_later", marks=at_length),
        pytest.param("price_all", marks=at_length),
    ],
)
def test_an_outage_holds_the_partition_of_a_new_schema_alone_and_skips_nothing(
    route, registry, function
):
    known = registry.add("orders-value", ORDER)
    worker = route.worker(TRANSFORM=f"tests.kit.priced:{function}")
    route.write(*(Given(avro(known, ORDER, {"id": i}), partition=i % 2) for i in range(10)))
    route.await_outputs(10)
    new = registry.add("orders-value", WIDER)
    registry.kill()
    route.write(Given(avro(new, WIDER, {"id": 10}), partition=0))
    route.write(*(Given(avro(known, ORDER, {"id": i}), partition=0) for i in range(11, 20)))
    await_told(worker, "schemas_unavailable")
    route.write(*(Given(avro(known, ORDER, {"id": i}), partition=1) for i in range(20, 30)))
    route.await_outputs(20)  # the other partition goes on without a registry
    assert totals(route) == [2 * i for i in [*range(10), *range(20, 30)]]
    registry.start()
    route.await_outputs(30)
    assert totals(route) == [2 * i for i in range(30)]
    assert route.dead() == []
    assert worker.lines("schemas_recovered")
    assert worker.terminate() == 0


@at_length
@pytest.mark.rounds
def test_on_spark_an_outage_holds_the_lane_of_a_new_schema_and_skips_nothing(route, registry):
    known = registry.add("orders-value", ORDER)
    driver = route.start(SparkProcess, "s-0")
    route.write(*(Given(avro(known, ORDER, {"id": i}), partition=i % 2) for i in range(10)))
    route.await_outputs(10)
    new = registry.add("orders-value", WIDER)
    registry.kill()
    route.write(Given(avro(new, WIDER, {"id": 10}), partition=0))
    route.write(*(Given(avro(known, ORDER, {"id": i}), partition=i % 2) for i in range(11, 20)))
    await_told(driver, "schemas_unavailable")
    registry.start()
    route.await_outputs(20)
    assert totals(route) == [2 * i for i in range(20)]
    assert route.dead() == []
    await_told(driver, "schemas_recovered")
    assert driver.terminate() == 0


def test_a_start_with_the_cache_needs_no_registry_and_without_it_waits(route, registry):
    known = registry.add("orders-value", ORDER)
    route.write(avro(known, ORDER, {"id": 1}))
    route.run_to_end()
    registry.kill()
    route.write(avro(known, ORDER, {"id": 2}))
    route.run_to_end()
    assert totals(route) == [2, 4]
    worker = route.worker("w-1", REGISTRY__CACHE=None)
    await_told(worker, "schemas_unavailable")
    registry.start()
    await_told(worker, "service_ready")
    assert worker.terminate() == 0


def test_a_refused_login_leaves_with_3_and_a_missing_subject_with_2(route, registry):
    registry.status = 401
    worker = route.worker("w-0")
    worker.ends_with(3)
    registry.status = None
    registry.schemas.clear()
    worker = route.worker("w-1", REGISTRY__CACHE=None)
    worker.ends_with(2)
    assert f"{route.target}-value" in worker.text()


def test_control_a_plain_loop_around_the_official_deserializer_skips_records_in_an_outage(registry):
    known = registry.add("orders-value", ORDER)
    new = registry.add("orders-value", WIDER)
    client = SchemaRegistryClient({"url": registry.url, "max.retries": 0})
    read = AvroDeserializer(client, conf={"subject.name.strategy": topic_subject_name_strategy})
    context = SerializationContext("orders", MessageField.VALUE)
    values = [avro(known, ORDER, {"id": 0}), avro(new, WIDER, {"id": 1})]
    seen = []
    for number, value in enumerate([*values, values[0]]):
        if number == 1:
            registry.kill()
        if number == 2:
            registry.start()
        try:
            seen.append(read(value, context)["id"])
        except Exception:  # noqa: BLE001, S112 - the loop that people write
            continue
    assert seen == [0, 0]


@at_length
@pytest.mark.rounds
@pytest.mark.timeout(900)
def test_ten_minutes_without_a_registry_under_load_skip_nothing(route, registry):
    known, new = registry.add("orders-value", ORDER), 0
    worker = route.worker()
    written, began_s = 0, time.monotonic()
    while (elapsed_s := time.monotonic() - began_s) < 600:
        if elapsed_s > 5 and not new:
            new = registry.add("orders-value", WIDER)
            registry.kill()
            route.write(Given(avro(new, WIDER, {"id": written}), partition=0))
            written += 1
        batch = range(written, written + 200)
        route.write(
            *(Given(avro(known, ORDER, {"id": i}), partition=i % 2 if i % 10 else 1) for i in batch)
        )
        written += 200
        time.sleep(0.2)
    await_told(worker, "schemas_unavailable")
    before = len(route.outputs())
    assert before > written // 3
    registry.start()
    route.await_outputs(written)
    assert totals(route) == [2 * i for i in range(written)]
    assert route.dead() == []
    assert worker.terminate() == 0
