"""Kafka: all nodes of the sandbox, and the topics on them."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.cimpl import NewTopic

from hapax.sandbox.broker import (
    Broker,
    Extra,
    are_led,
    known_brokers,
    leaders_answer,
    led_partitions,
    metadata_client,
    new_id,
)
from hapax.sandbox.guard import GUARDED
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.processes import LOOPBACK, READY_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from hapax.sandbox.processes import Ports
    from hapax.sandbox.watchdog import ChildWatchdog

_REQUEST_TIMEOUT_S = 60.0


class SandboxTopic(NamedTuple):
    """A topic to create."""

    name: str
    partitions: int = 1
    config: Mapping[str, str] | None = None


class KafkaCluster:
    """All brokers of the sandbox."""

    def __init__(
        self, nodes: int, folder: Path, ports: Ports, watchdog: ChildWatchdog, extra: Extra
    ) -> None:
        self.brokers = [
            Broker(node_id, folder / f"broker-{node_id}", ports, watchdog, extra)
            for node_id in range(1, nodes + 1)
        ]
        self._cluster_id = folder / "cluster-id"

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    @property
    def guarded_bootstrap_servers(self) -> str:
        return self.guarded(GUARDED)

    def guarded(self, listener: str) -> str:
        ports = [broker.guarded_ports.get(listener) for broker in self.brokers]
        if None in ports:
            raise SandboxError(f"No listener {listener}. Use Sandbox(guarded=True)")
        return ",".join(f"{LOOPBACK}:{port}" for port in ports)

    def start(self) -> None:
        """Configure and format all nodes and start them together. Does not wait."""
        voters = ",".join(
            f"{broker.node_id}@{LOOPBACK}:{broker.controller_port}" for broker in self.brokers
        )
        if not self._cluster_id.exists():
            self._cluster_id.write_text(new_id(), encoding="ascii")
        for broker in self.brokers:
            broker.configure(voters, len(self.brokers))
            broker.format(self._cluster_id.read_text(encoding="ascii"))
            broker.start()

    def await_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until every broker itself answers a metadata request that names all of them."""
        deadline = time.monotonic() + timeout_s
        everybody = {broker.node_id for broker in self.brokers}
        for broker in self.brokers:
            asked = metadata_client(broker.address)
            left_s = max(0.0, deadline - time.monotonic())
            broker.wait_until(partial(_names, asked, everybody), left_s)

    def has_topic(self, name: str) -> bool:
        """Return whether a topic exists, with a leader for one partition at least."""
        return led_partitions(metadata_client(self.bootstrap_servers), name) > 0

    def create_missing(self, partitions: Mapping[str, int]) -> None:
        missing = [SandboxTopic(*one) for one in partitions.items() if not self.has_topic(one[0])]
        if missing:
            self.create_topics(*missing)

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        self.create_topics(SandboxTopic(name, partitions, config))

    def create_topics(self, *topics: SandboxTopic) -> None:
        """Create topics with one request, replicated to all nodes.

        Returns when every running broker knows a leader for each of their partitions, and that
        leader answers. Raises KafkaException: a topic exists, its name or its configuration is
        refused.
        """
        new = [
            NewTopic(
                topic.name,
                num_partitions=topic.partitions,
                replication_factor=len(self.brokers),
                config=dict(topic.config or {}),
            )
            for topic in topics
        ]
        client = metadata_client(self.bootstrap_servers)
        there = client.list_topics(timeout=_REQUEST_TIMEOUT_S).topics
        answers = client.create_topics(new, operation_timeout=_REQUEST_TIMEOUT_S)
        for name, answer in answers.items():
            try:
                answer.result()
            except KafkaException as error:
                # A slow broker's request to the controller is repeated: the second finds the first.
                if name in there or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        partitions = {topic.name: topic.partitions for topic in topics}
        for broker in self.brokers:
            if broker.running:
                alone = len(self.brokers) == 1
                asked = client if alone else metadata_client(broker.address)
                broker.wait_until(partial(are_led, asked, partitions))
        self.brokers[0].wait_until(partial(leaders_answer, client, partitions))

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        client = metadata_client(self.bootstrap_servers)
        target = TopicPartition(topic, partition, before_offset)
        client.delete_records([target], operation_timeout=_REQUEST_TIMEOUT_S)[target].result()


def _names(asked: AdminClient, everybody: set[int]) -> bool:
    return known_brokers(asked) == everybody
