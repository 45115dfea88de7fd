"""Strikes at brokers: killed, frozen, moved, out of step, all away (B, S-K2)."""

import time

from hapax.sandbox import Broker
from hapax.sandbox.broker import java
from tests.fault.cluster import INTERNAL
from tests.fault.scene import Scene
from tests.kit.faults import Rule
from tests.kit.waiting import await_

PROCESSOR_SHARE_MAX = 0.3
RESIDENT_GROWTH_MAX = 200 << 20
READY_S = 90.0


def broker_of(scene: Scene, role: str) -> Broker:
    """Return who leads a partition of input or output, or coordinates group or producer."""
    stage = scene.stage
    app = stage.topics.app
    if role == "offsets":
        broker = stage.cluster.coordinator(role, app)
    elif role == "transactions":
        broker = stage.cluster.coordinator(role, f"{app}:{stage.members[0].instance}")
    else:
        topic = stage.topics.source if role == "input" else stage.topics.outputs[0]
        broker = stage.cluster.leader(topic, scene.rng.randrange(stage.plan.partitions))
    scene.target = f"broker {broker.node_id}, {role}"
    return broker


def kill(scene: Scene, role: str) -> None:
    """Kill a broker; it comes back when everything goes on without it."""
    broker = broker_of(scene, role)
    stage = scene.stage
    places = stage.cluster.places([stage.topics.source, *stage.topics.outputs, *INTERNAL.values()])
    scene.mark("kill")
    broker.kill()
    scene.hit()
    scene.kafka_s = stage.cluster.await_led(places)
    scene.await_recovery()
    broker.start()
    scene.heal()


def freeze(scene: Scene, role: str, seconds: float) -> None:
    """Freeze a broker for less than its session with the controllers."""
    broker = broker_of(scene, role)
    scene.mark("freeze")
    scene.freeze(broker, seconds)


def freeze_in_commit(scene: Scene, seconds: float) -> None:
    """Freeze the transaction coordinator while a commit is on its way."""
    broker = broker_of(scene, "transactions")
    scene.target += f", {scene.proxied.instance}"
    rule = scene.arm(Rule("EndTxn", "delay", delay_ms=200))
    scene.await_hit(rule)
    scene.freeze(broker, seconds)


def move_leaders(scene: Scene) -> None:
    """Give every partition, the coordinators' too, another leader."""
    stage, cluster = scene.stage, scene.stage.cluster
    names = [stage.topics.source, *stage.topics.outputs, "__consumer_offsets"]
    scene.mark("election")
    scene.hit(cluster.move_leaders(cluster.places([*names, "__transaction_state"])))
    scene.target = "all partitions"


def reassign(scene: Scene) -> None:
    """Take one replica of every output away, and give it back."""
    stage, cluster = scene.stage, scene.stage.cluster
    places = cluster.places(stage.topics.outputs)
    scene.mark("reassignment")
    cluster.reassign({place: [1, 2] for place in places})
    _await_replicas(scene, 2)
    cluster.reassign({place: [3, 1, 2] for place in places})
    _await_replicas(scene, 3)
    scene.hit(2 * len(places))
    scene.target = "outputs"


def _await_replicas(scene: Scene, count: int) -> None:
    cluster, outputs = scene.stage.cluster, scene.stage.topics.outputs
    await_(lambda: cluster.replicas(outputs) == {count}, 30, lambda: f"no {count} replicas")


def restart_all(scene: Scene, kafka: str = "") -> None:
    """Stop and start one broker after the other; with ``kafka`` as that version from then on."""
    for broker in scene.stage.cluster.brokers:
        assert scene.stage.cluster.await_in_step()
        scene.mark("last stop")
        broker.terminate()
        scene.hit()
        if kafka:
            broker.command = java("kafka.Kafka", broker.configuration, kafka=kafka)
        broker.start()
        broker.await_ready(READY_S)
    scene.target = f"one after the other{kafka and f', as {kafka}'}"


def freeze_two(scene: Scene, seconds: float) -> None:
    """Freeze two of three: nothing can be written. Readiness and liveness are looked at."""
    chosen = scene.rng.sample(scene.stage.cluster.brokers, 2)
    scene.target = " and ".join(f"broker {broker.node_id}" for broker in chosen)
    for broker in chosen:
        broker.pause()
        scene.hit()
    time.sleep(seconds)
    _look(scene)
    for broker in chosen:
        broker.resume()
    scene.thawed()


def below_min_isr(scene: Scene, seconds: float) -> None:
    """Ask for three in-sync replicas of the outputs, and kill a broker: writes are refused."""
    stage = scene.stage
    broker = broker_of(scene, "output")
    stage.cluster.configure(stage.topics.outputs, "min.insync.replicas", "3")
    broker.kill()
    scene.hit()
    time.sleep(seconds)
    _look(scene)
    broker.start()
    broker.await_ready(READY_S)
    scene.heal()
    scene.mark("broker back")
    scene.await_recovery()
    stage.cluster.configure(stage.topics.outputs, "min.insync.replicas", "2")


def _look(scene: Scene) -> None:
    for member in scene.stage.members:
        scene.demand(member.probe("/livez"), f"{member.instance} is not alive")
        scene.note(f"{member.instance} {'ready' if member.probe('/readyz') else 'not ready'}")
    aborts = scene.events("batch_aborted")
    scene.note(f"batches aborted {aborts}")
    scene.demand(aborts < 100, f"{aborts} batches aborted: a storm")


def kill_all(scene: Scene, seconds: float) -> None:
    """Kill all brokers; they stay away for so long. Workers must neither spin nor grow."""
    stage = scene.stage
    scene.target = "all brokers"
    for broker in stage.cluster.brokers:
        broker.kill()
        scene.hit()
    time.sleep(1.0)
    before = {member: member.usage() for member in stage.members if member.running}
    began_s = time.time()
    time.sleep(seconds)
    _look(scene)
    for member, first in before.items():
        if not member.running:
            continue
        last = member.usage()
        share = (last.processor_s - first.processor_s) / (time.time() - began_s)
        grown = last.resident_bytes - first.resident_bytes
        scene.note(f"{member.instance}: processor {share:.2f}, memory +{grown >> 20} MB")
        scene.demand(share < PROCESSOR_SHARE_MAX, f"{member.instance} took {share:.2f} of a core")
        scene.demand(grown < RESIDENT_GROWTH_MAX, f"{member.instance} grew by {grown >> 20} MB")
    for broker in stage.cluster.brokers:
        broker.start()
    for broker in stage.cluster.brokers:
        broker.await_ready(READY_S)
    scene.heal()
    scene.mark("brokers back")
