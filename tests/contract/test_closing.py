"""A member that leaves while the assignment is on its way that it has not served yet."""

import gc
import subprocess
import sys
import weakref
from select import select

import pytest
from confluent_kafka import ConsumerGroupState, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from hapax.sandbox import Sandbox
from tests.kit.managed_process import child
from tests.kit.waiting import await_, patient
from tests.kit.worlds import KafkaWorld, consumer_of, joined

CLIENT_ALONE = """
import sys, time
from confluent_kafka import Consumer
bootstrap, topic = sys.argv[1:]
while group := sys.stdin.readline().strip():
    client = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.instance.id": "one",
        "partition.assignment.strategy": "cooperative-sticky",
    })
    client.subscribe(
        [topic],
        # Late enough for the revocation to be queued, too.
        on_assign=lambda *_: time.sleep(0.05),
        on_revoke=lambda *_: print("revoked", file=sys.stderr, flush=True),
    )
    print("subscribed", flush=True)
    sys.stdin.readline()
    client.close()
    print("closed", flush=True)
"""
ROUNDS_MAX = 30


def await_stable(sandbox: Sandbox, group: str) -> None:
    """Wait until the broker has shared out: the member may not have looked yet."""
    admin = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})

    @patient
    def stable() -> bool:
        described = admin.describe_consumer_groups([group])[group].result(10)
        return bool(described.state == ConsumerGroupState.STABLE)

    await_(stable, 60, lambda: "the group is never stable")


@pytest.mark.parametrize("fast", ["auto", "off"])
def test_a_source_closes_while_an_assignment_is_on_its_way(sandbox, fast):
    world = KafkaWorld(sandbox, fast)
    world.join()
    properties = consumer_of(world).properties
    assert properties["group.instance.id"]
    assert properties["partition.assignment.strategy"] == "cooperative-sticky"
    await_stable(sandbox, str(properties["group.id"]))
    changes = world.source.changes()
    assert changes.assigned is None, "the assignment was served before the source was closed"
    world.close()


def test_control_the_client_alone_hangs_there_for_ever(sandbox):
    """When this fails the client has been cured, and serving before closing may go."""
    world = KafkaWorld(sandbox)
    arguments = [sys.executable, "-c", CLIENT_ALONE, sandbox.bootstrap_servers, world.topic]
    pipe = subprocess.PIPE
    with child(arguments, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        for number in range(ROUNDS_MAX):
            group = f"{world.topic}-{number}"
            process.stdin.write(f"{group}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline() == b"subscribed\n"
            await_stable(sandbox, group)
            process.stdin.write(b"\n")
            process.stdin.flush()
            if not select([process.stdout], [], [], 10)[0]:
                break  # the answer may also be read too late to do harm: most rounds hang
            assert process.stdout.readline() == b"closed\n"
        else:
            pytest.fail(f"{ROUNDS_MAX} clients closed")
    world.close()


def test_a_route_after_closing_has_no_effect(sandbox):
    """An assignment may still arrive between the last service and the end of the client."""
    pytest.importorskip("hapax_fast")
    world = KafkaWorld(sandbox, "on")
    joined(world)
    intake = consumer_of(world).intake
    assert intake is not None
    intake.close()
    intake.route([(world.topic, 0)])
    with pytest.raises(RuntimeError, match="was closed"):
        intake._intake.route(world.topic, 0)
    world.close()


class Handled(Exception):  # noqa: N818 - nothing is wrong
    """What is handled."""


def fail(producer: Producer) -> None:
    try:
        producer.list_topics(timeout=0.01)
    except KafkaException:
        return
    raise AssertionError("there is no broker")


def outlives(*, inside: bool) -> bool:
    """Let a call fail in a handler, or after it; return whether the exception is still there."""
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})

    def handle() -> weakref.ref[Handled]:
        handled = Handled()
        known = weakref.ref(handled)
        try:
            raise handled
        except Handled:
            if inside:
                fail(producer)
        if not inside:
            fail(producer)
        return known

    known = handle()
    gc.collect()
    return known() is not None


def test_after_a_handler_nothing_is_kept():
    assert not outlives(inside=False)


def test_control_the_client_keeps_what_is_handled_when_its_call_fails():
    """When this fails the client has been cured, and its calls may be made in handlers again."""
    assert outlives(inside=True)
