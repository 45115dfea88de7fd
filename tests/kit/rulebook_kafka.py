"""The rulebook's real side: our adapters on the sandbox's broker, producers behind a proxy."""

import struct
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from typing import ClassVar, cast

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec, ResourceType

from hapax.core.ports import Source
from hapax.core.records import Progress, Record
from hapax.kafka.consume.client import parse_metadata
from hapax.kafka.consume.source import KafkaSource
from hapax.sandbox import Sandbox, SandboxTopic
from hapax.settings import Settings
from tests.kit.committing import Committing
from tests.kit.faults import Rule
from tests.kit.parts import settings_of, source_of, transaction_of
from tests.kit.proxy import FaultProxy
from tests.kit.rulebook import PARTITIONS, TIMEOUT_S, Claim, GroupKind
from tests.kit.topics import FOREVER, Given, committed, configure, produce, produce_open, read_back
from tests.kit.waiting import await_


class KafkaLate:
    """What the proxy keeps."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def release(self) -> int:
        self._rule.release()
        code = self._rule.wait_answered()
        assert code is not None
        return code


class KafkaUpstream:
    """An open transaction of a plain producer."""

    def __init__(self, world: "KafkaRulebook", producer: Producer) -> None:
        self._world, self._producer = world, producer

    def end(self, *, commit: bool) -> None:
        before = self._world.input_end()
        if commit:
            self._producer.commit_transaction(30)
        else:
            self._producer.abort_transaction(30)
        # The producer is answered before the marker is in the log.
        await_(lambda: self._world.input_end() > before, 10, lambda: "no marker")


class KafkaTopics:
    """An input and an output of their own on the sandbox's broker, and the name of a group.

    ``config``: of the output.
    """

    patience_ms: ClassVar[int] = 500
    """How long the marker of a transaction may take to the output."""

    def __init__(self, sandbox: Sandbox, config: Mapping[str, str] = FOREVER) -> None:
        name = uuid.uuid4().hex[:12]
        self.topic, self.target, self._app = f"in-{name}", f"out-{name}", f"app-{name}"
        self._bootstrap = sandbox.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": self._bootstrap})
        self._exits = ExitStack()
        sandbox.create_topics(
            SandboxTopic(self.topic, PARTITIONS), SandboxTopic(self.target, 1, config)
        )

    def write(self, *values: bytes, partition: int = 0) -> None:
        given = (Given(value, b"key", partition=partition) for value in values)
        produce(self._bootstrap, self.topic, *given)

    def outputs(self) -> list[Record]:
        return read_back(self._bootstrap, self.target, patience_ms=self.patience_ms)

    def committed(self) -> Progress:
        found: list[TopicPartition] = []

        def stable() -> bool:
            found[:] = self._group_offsets()
            return not any(one.error for one in found)

        await_(stable, 10, lambda: f"offsets of an open transaction: {found}")
        return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}

    def _group_offsets(self) -> list[TopicPartition]:
        """Return what the group has; UNSTABLE_OFFSET_COMMIT where a transaction is not over."""
        asked = ConsumerGroupTopicPartitions(
            self._app, [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        )
        (answer,) = self._admin.list_consumer_group_offsets([asked], require_stable=True).values()
        return list(answer.result(30).topic_partitions or [])

    def close(self) -> None:
        self._exits.close()


class KafkaRulebook(KafkaTopics):
    """Topics and a group of its own. ``timeout_s``: of a transaction. ``fast``: HAPAX_FAST."""

    patience_ms = 20  # ``shown`` waits for markers itself

    def __init__(
        self, sandbox: Sandbox, kind: GroupKind, fast: str, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        super().__init__(sandbox)
        self._fast = fast
        self._kind, self._timeout_s = kind, timeout_s
        if kind == "consumer":
            # Members of the new protocol ask every 5 s by default.
            quick = {"consumer.heartbeat.interval.ms": "500"}
            configure(self._admin, ResourceType.GROUP, [self._app], quick)
        # Who asks first for a group makes the broker create its topic; a producer might hang.
        committed(self._bootstrap, self._app, self.topic)
        self._proxy = self._exits.enter_context(FaultProxy.before(sandbox))

    def member(self, instance: str) -> KafkaSource:
        source = source_of(self._settings(instance, self._bootstrap), KafkaSource)
        self._exits.callback(source.close)
        source.subscribe()
        return source

    def leave(self, source: Source) -> None:
        cast("KafkaSource", source).close()

    def producer(self, source: Source | Claim, instance: str = "w") -> Committing:
        transaction = transaction_of(self._settings(instance, self._proxy.bootstrap))
        self._exits.callback(transaction.close)
        return Committing(transaction, source)

    def upstream(self, *values: bytes) -> KafkaUpstream:
        given = (Given(value, partition=0) for value in values)
        opened = produce_open(self._bootstrap, self.topic, *given)
        return KafkaUpstream(self, self._exits.enter_context(opened))

    def input_end(self) -> int:
        return self._end(self.topic, IsolationLevel.READ_UNCOMMITTED)

    def hold(self, api: str) -> KafkaLate:
        rule = self._proxy.add(Rule(api, "hold"))

        def cut() -> None:
            rule.wait_hit()
            self._proxy.cut()

        # A client whose connection breaks sends again at once; a silent one after its timeout.
        cutting = threading.Thread(target=cut, name="cutting")
        cutting.start()
        self._exits.callback(cutting.join)
        return KafkaLate(rule)

    def ends(self) -> tuple[int, int]:
        stable = self._end(self.target, IsolationLevel.READ_COMMITTED)
        return stable, self._end(self.target, IsolationLevel.READ_UNCOMMITTED)

    def identity(self, metadata: bytes) -> tuple[str, int]:
        generation, member_id = parse_metadata(metadata)
        return member_id, generation

    def metadata(self, member_id: str, generation: int, like: bytes | None = None) -> bytes:
        # librdkafka's layout; what stands behind the member id is the static name, if any.
        _group, _member, tail = (like[11:] if like else b"\0\0\1").split(b"\0", 2)
        parts = (self._app.encode(), member_id.encode(), tail)
        return b"CGMDv2:" + struct.pack("=i", generation) + b"\0".join(parts)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def _settings(self, instance: str, bootstrap: str) -> Settings:
        return settings_of(
            bootstrap,
            self.topic,
            self.target,
            self._app,
            HAPAX_INSTANCE=instance,
            HAPAX_FAST=self._fast,
            HAPAX_TRANSACTION__TIMEOUT=f"{self._timeout_s:g}s",
            HAPAX_GROUP__MEMBERSHIP="static" if self._kind == "static" else "dynamic",
            HAPAX_GROUP__PROTOCOL="consumer" if self._kind == "consumer" else "classic",
        )

    def _end(self, topic: str, isolation: IsolationLevel) -> int:
        asked = {TopicPartition(topic, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        (answer,) = self._admin.list_offsets(asked, isolation_level=isolation).values()
        return int(answer.result(30).offset)
