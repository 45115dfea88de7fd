"""A real registry around a real worker: killed under load, frozen, beside the official serdes."""

import json
import time
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from hapax.sandbox import Sandbox, SandboxError
from tests.kit.at_work import await_told
from tests.kit.avro_orders import ORDER, TOTAL, WIDER, avro, totals
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.priced_messages import ORDER_PROTO, Order
from tests.kit.proof import at_length, rounds
from tests.kit.topics import Given

pytestmark = pytest.mark.long

_INTEGERS = {"type": "object", "additionalProperties": False}
DEAD_S = 600.0
JSON_ORDER = {**_INTEGERS, "title": "Order", "properties": {"id": {"type": "integer"}}}
JSON_TOTAL = {
    **_INTEGERS,
    "title": "Total",
    "properties": {"id": {"type": "integer"}, "total": {"type": "integer"}},
    "required": ["id", "total"],
}


@pytest.fixture(scope="module")
def servers():
    with Sandbox(redis=False, registry=True) as servers:
        yield servers


@pytest.fixture
def client(servers):
    servers.registry.resume()
    if not servers.registry.running:  # a test before has failed
        servers.registry.start()
    servers.registry.await_ready()
    with SchemaRegistryClient({"url": servers.registry.url, "timeout": 60}) as client:
        yield client


@pytest.fixture
def route(servers, route_of, tmp_path):
    """Its outputs have a schema, and an id that the registry denies is a dead letter at once."""
    schema = tmp_path / "total.avsc"
    schema.write_text(json.dumps(TOTAL))
    return route_of(
        2,
        servers=servers,
        TRANSFORM="tests.kit.priced:price",
        INPUT__FORMAT="avro",
        OUTPUT__FORMAT="avro",
        OUTPUT__SCHEMA=str(schema),
        REGISTRY__URL=servers.registry.url,
        REGISTRY__AUTO_REGISTER="true",
        REGISTRY__TIMEOUT="2s",
        REGISTRY__GRACE="0s",
        REGISTRY__AFTER_GRACE="dead-letter",
    )


def added(client: SchemaRegistryClient, route: PipelineUnderTest, schema: dict[str, Any]) -> int:
    return client.register_schema(f"{route.source}-value", Schema(json.dumps(schema), "AVRO"))


def test_the_environment_names_the_registry_and_a_sandbox_without_one_says_how_to_get_it(servers):
    assert servers.environment()["HAPAX_REGISTRY__URL"] == servers.registry.url
    with pytest.raises(SandboxError, match="registry=True"):
        _ = Sandbox().registry


def test_json_schema_of_the_official_serdes_is_read_and_what_is_written_is_read_by_them(
    route, client, tmp_path
):
    schema = tmp_path / "total.json"
    schema.write_text(json.dumps(JSON_TOTAL))
    write = JSONSerializer(json.dumps(JSON_ORDER), client)
    context = SerializationContext(route.source, MessageField.VALUE)
    values = [write({"id": i}, context) or b"" for i in range(5)]
    wrong = values[0][:5] + b'{"id": "none"}'
    route.write(*values, wrong)
    route.run_to_end(
        INPUT__FORMAT="json-schema", OUTPUT__FORMAT="json-schema", OUTPUT__SCHEMA=str(schema)
    )
    read = JSONDeserializer(None, schema_registry_client=client)
    context = SerializationContext(route.target, MessageField.VALUE)
    found = [read(one.value, context) for one in route.outputs()]
    assert sorted(one["total"] for one in found if one) == [0, 2, 4, 6, 8]
    assert [one.value for one in route.dead()] == [wrong]


def test_protobuf_needs_no_descriptor_where_classes_are_generated(route, client, tmp_path):
    schema = tmp_path / "order.proto"
    schema.write_text(ORDER_PROTO)
    known = client.register_schema(f"{route.source}-value", Schema(ORDER_PROTO, "PROTOBUF"))
    begins = b"\0" + known.to_bytes(4, "big") + b"\0"
    route.write(*(begins + Order(id=i).SerializeToString() for i in range(5)))
    route.run_to_end(
        TRANSFORM="tests.kit.priced_messages:price",
        INPUT__FORMAT="protobuf",
        OUTPUT__FORMAT="protobuf",
        OUTPUT__SCHEMA=str(schema),
    )
    # With the client the official one asks for a descriptor, which this registry does not give.
    read = ProtobufDeserializer(Order, {"use.deprecated.format": False})
    context = SerializationContext(route.target, MessageField.VALUE)
    assert sorted(read(one.value, context).total for one in route.outputs()) == [0, 2, 4, 6, 8]
    assert route.dead() == []


@pytest.mark.rounds
def test_a_registry_killed_under_load_skips_nothing_and_knows_its_ids_when_it_is_back(
    servers, route, client
):
    known = added(client, route, ORDER)
    worker = route.worker()
    written = 0

    def load(count: int, partition: int) -> None:
        nonlocal written
        orders = range(written, written + count)
        route.write(*(Given(avro(known, ORDER, {"id": i}), partition=partition) for i in orders))
        written += count

    for number in range(1, rounds(1, 10) + 1):
        load(10, 0)
        route.await_outputs(written)  # the worker has the schema of what it knows
        load(100, 0)
        load(100, 1)
        held = {**WIDER, "doc": str(number)}
        new = added(client, route, held)
        outages = len(worker.lines("schemas_unavailable"))
        servers.registry.kill()
        route.write(Given(avro(new, held, {"id": written}), partition=0))
        written += 1
        load(100, 0)
        await_told(worker, "schemas_unavailable", outages + 1)
        load(100, 1)
        route.await_outputs(written - 101)  # known ids, on the partition that need not wait
        waiting = set(range(written - 201, written - 100))
        assert totals(route) == [2 * i for i in range(written) if i not in waiting]
        servers.registry.start()
        load(100, 1)
        route.await_outputs(written)
        await_told(worker, "schemas_recovered", outages + 1)
        servers.registry.await_ready()
        assert totals(route) == [2 * i for i in range(written)]
    assert route.dead() == []
    assert worker.terminate() == 0
    with SchemaRegistryClient({"url": servers.registry.url}) as another:
        assert added(another, route, ORDER) == known


@at_length
@pytest.mark.rounds
@pytest.mark.timeout(1500)
def test_a_registry_that_is_dead_for_ten_minutes_under_load_skips_nothing_and_condemns_nothing(
    servers, route, client
):
    """Longer than a member of the group may go without a poll."""
    known, new = added(client, route, ORDER), added(client, route, WIDER)
    worker = route.worker()
    route.write(Given(avro(known, ORDER, {"id": 0}), partition=1))
    route.await_outputs(1)
    servers.registry.kill()
    route.write(Given(avro(new, WIDER, {"id": 1}), partition=0))
    written, back_s = 2, time.monotonic() + DEAD_S
    while time.monotonic() < back_s:
        more = range(written, written + 1000)
        route.write(*(Given(avro(known, ORDER, {"id": i}), partition=i % 2) for i in more))
        written += len(more)
        route.await_outputs(written // 2)  # known ids, on the partition that need not wait
        time.sleep(10)  # 100 records a second
    assert totals(route) == [0, *(2 * i for i in range(3, written, 2))]
    servers.registry.start()
    route.await_outputs(written)
    assert totals(route) == [2 * i for i in range(written)]
    assert route.dead() == []
    assert worker.terminate() == 0, worker.text()


@pytest.mark.rounds
def test_a_frozen_registry_holds_a_new_id_alone_and_an_id_that_it_denies_is_a_dead_letter(
    servers, route, client
):
    known, new, written = added(client, route, ORDER), 0, 0
    worker = route.worker()
    for number in range(1, rounds(1, 10) + 1):
        route.write(Given(avro(known, ORDER, {"id": written}), partition=1))
        route.await_outputs(written + 1)
        held = {**WIDER, "doc": f"frozen {number}"}
        new = added(client, route, held)
        outages = len(worker.lines("schemas_unavailable"))
        servers.registry.pause()
        route.write(Given(avro(new, held, {"id": written + 1}), partition=0))
        await_told(worker, "schemas_unavailable", outages + 1)
        route.write(Given(avro(known, ORDER, {"id": written + 2}), partition=1))
        route.await_outputs(written + 2)
        assert totals(route) == [2 * i for i in range(written + 3) if i != written + 1]
        servers.registry.resume()
        await_told(worker, "schemas_recovered", outages + 1)
        written += 3
        route.await_outputs(written)
        assert totals(route) == [2 * i for i in range(written)]
    assert route.dead() == []
    denied = avro(new + 1000, ORDER, {"id": 0})
    route.write(denied)
    route.await_lag_0()
    assert [one.value for one in route.dead()] == [denied]
    assert worker.terminate() == 0
