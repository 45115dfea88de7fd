"""Three brokers as a nemesis sees them: who leads what, who is in step, and who is to lead next."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import ResourceType

from hapax.sandbox import Broker, Sandbox
from hapax.sandbox.broker import metadata_client
from tests.fault.watching import wire
from tests.fault.watching.wire import Place
from tests.kit.topics import configure
from tests.kit.waiting import reaches

INTERNAL = {"offsets": "__consumer_offsets", "transactions": "__transaction_state"}
ASK_S = 5.0
LED_ASK_S = 0.5
IN_STEP_S = 90.0
COMPLAINTS_MAX = 40


class Cluster:
    def __init__(self, sandbox: Sandbox) -> None:
        self.brokers = sandbox.kafka.brokers
        self._admin = metadata_client(sandbox.bootstrap_servers)

    def leader(self, topic: str, partition: int) -> Broker:
        """Return who leads a partition; waits while nobody does."""
        deadline_s = time.monotonic() + IN_STEP_S
        while time.monotonic() < deadline_s:
            try:
                found = self._admin.list_topics(topic, timeout=ASK_S).topics[topic].partitions
                if partition in found and found[partition].leader > 0:
                    return self.brokers[found[partition].leader - 1]
            except KafkaException:
                pass
            time.sleep(0.05)
        raise AssertionError(f"nobody leads {topic}/{partition}")

    def coordinator(self, role: str, name: str) -> Broker:
        """Return the coordinator of a group (``offsets``) or transactional id."""
        topic = INTERNAL[role]
        count = len(self._admin.list_topics(topic, timeout=ASK_S).topics[topic].partitions)
        return self.leader(topic, (java_hash(name) & 0x7FFFFFFF) % count)

    def in_step(self) -> bool:
        """Whether all brokers run and every partition has all its replicas in sync."""
        try:
            found = self._admin.list_topics(timeout=ASK_S)
        except KafkaException:
            return False
        partitions = [each for topic in found.topics.values() for each in topic.partitions.values()]
        return len(found.brokers) == len(self.brokers) and all(
            each.leader > 0 and len(each.isrs) == len(each.replicas) for each in partitions
        )

    def await_in_step(self) -> bool:
        """Wait until the next broker may be taken away without harm to the one before."""
        return reaches(self.in_step, IN_STEP_S)

    def restore(self) -> None:
        """Let all run again. Does not wait."""
        for broker in self.brokers:
            if not broker.running:
                broker.start()
            else:
                broker.resume()

    def places(self, topics: Iterable[str]) -> list[Place]:
        found = self._admin.list_topics(timeout=ASK_S).topics
        return [(name, each) for name in topics for each in found[name].partitions]

    def await_led(self, places: Sequence[Place]) -> float:
        """Wait until brokers that run answer as leaders of all these partitions.

        Returns the seconds that it took, which no client can undercut. Asked by plain frames: the
        client's own calls wait for brokers that are gone.
        """
        began_s = time.monotonic()
        lines = [wire.Line(broker.port, LED_ASK_S) for broker in self.brokers if broker.running]
        missing = set(places)
        try:
            while missing and time.monotonic() - began_s < IN_STEP_S:
                for line in lines:
                    with suppress(OSError):
                        missing -= wire.ends(line, missing, wire.UNCOMMITTED).keys()
                time.sleep(0.02)
        finally:
            for line in lines:
                line.close()
        assert not missing, f"not led after {IN_STEP_S} s: {sorted(missing)}"
        return time.monotonic() - began_s

    def move_leaders(self, places: Sequence[Place]) -> int:
        orders = {}
        for place in places:
            led_by = self.leader(*place).node_id
            orders[place] = [(led_by + ahead) % len(self.brokers) + 1 for ahead in range(3)]
        self.reassign(orders)
        asked = [TopicPartition(*place) for place in places]
        self._admin.elect_leaders(ElectionType.PREFERRED, asked).result(ASK_S)

        def moved() -> int:
            return sum(self.leader(*place).node_id == nodes[0] for place, nodes in orders.items())

        reaches(lambda: moved() == len(orders), ASK_S)  # brokers hear of it one after another
        return moved()

    def replicas(self, topics: Iterable[str]) -> set[int]:
        """Return how many replicas partitions of these topics have, while none moves."""
        found = self._admin.list_topics(timeout=ASK_S).topics
        return {
            len(each.replicas) if len(each.isrs) == len(each.replicas) else 0
            for name in topics
            for each in found[name].partitions.values()
        }

    def configure(self, topics: Iterable[str], name: str, value: str) -> None:
        configure(self._admin, ResourceType.TOPIC, topics, {name: value})

    def configure_group(self, group: str, values: dict[str, str]) -> None:
        """Set configurations of a group: KIP-848 keeps them at the broker."""
        configure(self._admin, ResourceType.GROUP, [group], values)

    def reassign(self, replicas: Mapping[Place, Sequence[int]]) -> None:
        """Set the replicas of partitions, the preferred leader first."""
        line = wire.Line(next(one for one in self.brokers if one.running).port, ASK_S)
        try:
            wire.reassign(line, replicas, int(ASK_S * 1000))
        finally:
            line.close()


def complaints(broker: Broker) -> str:
    """Return the last errors of a broker's log, and what it said of coordinators."""
    lines = broker.log.read_text(encoding="utf-8", errors="replace").splitlines()
    told = [line[:400] for line in lines if "] ERROR " in line or "CoordinatorRuntime" in line]
    return "\n".join(told[-COMPLAINTS_MAX:])


def java_hash(text: str) -> int:
    """Return what ``String.hashCode`` does: it decides who coordinates a name."""
    number = 0
    for letter in text:
        number = (31 * number + ord(letter)) & 0xFFFFFFFF
    return number
