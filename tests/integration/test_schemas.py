"""Schemas from a registry, around a real worker: what it decodes, what outages and faults cost."""

import base64
import ssl
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from hapax.sandbox.guard import Authority
from tests.kit.at_work import QUICK, await_exit, await_told, left, untouched
from tests.kit.avro_orders import ORDER, WIDER, avro, avro_route, total, totals
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest, values
from tests.kit.priced_messages import ORDER_PROTO, Order
from tests.kit.proof import at_length
from tests.kit.schema_registry import RegistryDouble
from tests.kit.secured import KEY_PASSWORD
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given
from tests.kit.waiting import await_

# -- Schemas from a registry, around a real worker: what it decodes, and what its outages cost.

LATER = [pytest.param(name, marks=at_length) for name in ("price_later", "price_all")]
FORMS = pytest.mark.parametrize("function", ["price", *LATER])


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
@FORMS
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


# -- Registries that are slow, hang, lack descriptors or speak TLS, around a real worker ---

DESCRIPTOR = base64.b64encode(Order.DESCRIPTOR.file.serialized_pb).decode()


def message(schema: int, number: int) -> bytes:
    content: bytes = Order(id=number).SerializeToString()
    return b"\0" + schema.to_bytes(4, "big") + b"\0" + content


def test_a_registry_without_descriptors_ends_the_worker_with_3_before_the_record_that_needs_one(
    route, registry
):
    told = registry.add("orders-value", ORDER_PROTO, "PROTOBUF", serialized=DESCRIPTOR)
    untold = registry.add("orders-value", ORDER_PROTO, "PROTOBUF")
    schemas = [told, told, untold, told]
    values = [message(schema, number) for number, schema in enumerate(schemas, start=1)]
    route.write(*(Given(value, b"key", partition=0) for value in values))
    protobuf: dict[str, Any] = {
        "INPUT__FORMAT": "protobuf",
        "OUTPUT__FORMAT": "json",
        "TRANSFORM": None,
    }
    await_exit(route.worker(**protobuf), 3, "gives no descriptor of this schema", "generated class")
    assert [one.value for one in route.outputs()] == values_of(2)
    assert route.committed()[0] == 2
    assert route.dead() == []
    registry.schemas[untold - 1]["serialized"] = DESCRIPTOR
    route.run_to_end(**protobuf)
    assert [one.value for one in route.outputs()] == values_of(4)


def values_of(count: int) -> list[bytes]:
    """Return the first messages as JSON has them: numbers of 64 bits are text there."""
    return [b'{"id":"%d"}' % number for number in range(1, count + 1)]


def test_data_for_a_protobuf_schema_without_a_descriptor_ends_the_worker_with_3(route, registry):
    registry.add(f"{route.target}-value", ORDER_PROTO, "PROTOBUF")
    route.write(avro(registry.add("orders-value", ORDER), ORDER, {"id": 1}))
    worker = route.worker(OUTPUT__FORMAT="protobuf")
    await_exit(worker, 3, "gives no descriptor of this schema", "return messages")
    assert untouched(route)


def new_schemas(route: PipelineUnderTest, registry: RegistryDouble, count: int) -> None:
    """Write a record of each of so many schemas that nobody has asked for yet."""
    for number in range(count):
        schema = {**WIDER, "doc": str(number)}
        value = avro(registry.add("orders-value", schema), schema, {"id": number})
        route.write(Given(value, partition=number % 2))


@pytest.mark.rounds
@FORMS
def test_a_registry_slower_than_a_call_may_be_skips_nothing_and_is_no_fault_of_the_call(
    route, registry, function
):
    registry.slow_s = 0.8
    new_schemas(route, registry, 2)
    worker = route.worker(TRANSFORM=f"tests.kit.priced:{function}", CALL__TIMEOUT="300ms")
    await_(lambda: not worker.running or len(route.outputs()) == 2, 30, worker.text)
    assert worker.running, worker.text()
    assert totals(route) == [0, 2]
    assert route.dead() == []
    assert worker.terminate() == 0


@at_length
@pytest.mark.rounds
def test_a_slow_registry_with_many_new_schemas_costs_no_membership_and_skips_nothing(
    route, registry
):
    registry.slow_s = 0.9
    new_schemas(route, registry, 10)  # nine seconds, where each is waited for
    settings = QUICK | {"GROUP__MAX_POLL_INTERVAL": "7s", "WATCHDOG__TIMEOUT": "6s"}
    worker = route.worker(**settings, REGISTRY__TIMEOUT="2s")
    route.await_outputs(10)
    assert totals(route) == [2 * number for number in range(10)]
    assert route.dead() == []
    assert not worker.lines("partitions_lost")
    assert not worker.lines("partitions_revoked")
    assert worker.terminate() == 0


@at_length
@pytest.mark.rounds
@pytest.mark.parametrize("fate", ["stays", "is killed"])
def test_a_rebalance_while_partitions_wait_for_a_registry_that_hangs_skips_and_doubles_nothing(
    route, registry, fate
):
    known, new = registry.add("orders-value", ORDER), registry.add("orders-value", WIDER)

    def orders(number: int, schema: dict[str, Any], ids: range) -> None:
        # The key leads the outputs of one partition to one partition, where order is promised.
        values = {i: avro(number, schema, {"id": i}) for i in ids}
        route.write(*(Given(values[i], b"%d" % (i % 2), partition=i % 2) for i in ids))

    first = route.worker("w-0", **QUICK)
    orders(known, ORDER, range(2))
    route.await_outputs(2)
    registry.hang = True
    orders(new, WIDER, range(2, 4))
    orders(known, ORDER, range(4, 20))
    await_told(first, "schemas_unavailable", 2)
    second = route.worker("w-1", **QUICK)  # from the cache
    await_told(second, "schemas_unavailable")
    if fate == "is killed":
        first.kill()
        await_told(second, "schemas_unavailable", 2)
    assert totals(route) == [0, 2]
    registry.kill()
    registry.start()
    route.await_outputs(20)
    route.await_lag_0()
    assert in_order(route) == [list(range(0, 40, 4)), list(range(2, 40, 4))]
    assert route.dead() == []
    stopped: list[WorkerProcess] = [one for one in (first, second) if one.running]
    assert [one.terminate() for one in stopped] == [0] * len(stopped)


def in_order(route: PipelineUnderTest) -> list[list[int]]:
    """Return the totals of each input partition, as a reader of the outputs meets them."""
    found: dict[bytes, list[int]] = {}
    for one in sorted(route.outputs(), key=lambda one: (one.partition, one.offset)):
        source = dict(one.headers)["hapax-source"] or b""
        found.setdefault(source.rpartition(b"/")[0], []).append(total(one))
    return [numbers for _partition, numbers in sorted(found.items())]


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "authority")


@pytest.fixture
def guarded(authority):
    """A registry of a private authority, which asks for a certificate of the same."""
    ours = authority.issue("registry")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ours.certificate_file, ours.key_file)
    context.load_verify_locations(authority.ca_file)
    context.verify_mode = ssl.CERT_REQUIRED
    with RegistryDouble(context) as registry:
        yield registry


def test_a_registry_is_reached_by_a_private_authority_and_a_certificate_and_else_is_told_why_not(
    sandbox, tmp_path, authority, guarded
):
    route = avro_route(sandbox, tmp_path, guarded)
    known, stranger = guarded.add("orders-value", ORDER), Authority(tmp_path / "stranger")
    ours = authority.issue("worker", password=KEY_PASSWORD)
    trusting: dict[str, Any] = {
        "REGISTRY__CA_FILE": str(authority.ca_file),
        "REGISTRY__CERTIFICATE_FILE": str(ours.certificate_file),
        "REGISTRY__KEY_FILE": str(ours.key_file),
        "REGISTRY__KEY_PASSWORD": KEY_PASSWORD,
        "REGISTRY__CACHE": None,
    }
    route.write(avro(known, ORDER, {"id": 1}))
    wrong: list[tuple[int, str, dict[str, str | None]]] = [
        (3, "its certificate is not trusted", {"CA_FILE": str(stranger.ca_file)}),
        (
            3,
            "it refuses the client certificate",
            {"CERTIFICATE_FILE": None, "KEY_FILE": None, "KEY_PASSWORD": None},
        ),
        (2, "nowhere.pem", {"CA_FILE": str(tmp_path / "nowhere.pem")}),
        (2, "HAPAX_REGISTRY__CERTIFICATE_FILE", {"KEY_PASSWORD": "another"}),
    ]
    try:
        workers = [
            route.worker(f"w-{number}", **trusting | _registry(more))
            for number, (_code, _word, more) in enumerate(wrong)
        ]
        for worker, (code, word, _more) in zip(workers, wrong, strict=True):
            left(worker, code, word)
        assert untouched(route)
        route.run_to_end(**trusting)
        assert totals(route) == [2]
    finally:
        route.close()


def _registry(settings: dict[str, str | None]) -> dict[str, str | None]:
    return {f"REGISTRY__{name}": text for name, text in settings.items()}


# -- Two event types in one topic, as a union of Avro, through a worker and a registry -----

EVENTS = [
    {"type": "record", "name": f"shop.{name}", "fields": [{"name": "id", "type": "string"}]}
    for name in ("Created", "Deleted")
]


@pytest.mark.parametrize("referred", [False, True])
def test_a_deleted_leaves_as_deleted_and_garbage_is_a_dead_letter(sandbox, tmp_path, referred):
    with RegistryDouble() as registry:
        route = PipelineUnderTest(
            sandbox,
            tmp_path,
            INPUT__FORMAT="avro",
            OUTPUT__FORMAT="avro",
            REGISTRY__URL=registry.url,
        )
        route.create()
        union: list[Any] = list(EVENTS)
        references: list[dict[str, Any]] = []
        for place, event in enumerate(EVENTS if referred else []):
            union[place] = name = event["name"]
            registry.add(str(name), event)
            references.append({"name": name, "subject": name, "version": 1})
        number = registry.add(f"{route.target}-value", union, references=references)
        head = b"\0" + number.to_bytes(4, "big")
        events = [head + b"\0\2a", head + b"\2\2a", head + b"\2\2b"]
        route.write(*events, head + b"\4\2a")
        route.run_to_end()
        assert values(route.outputs()) == events
        assert len(route.dead()) == 1
        route.close()
