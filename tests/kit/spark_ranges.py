"""A driver's member and the tasks of its lanes on a real broker, in the test's own process."""

import time
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from hapax.core.records import Progress, Record, TopicPartition as Where
from hapax.engines.spark.plan import RangePlan, RangeReport
from hapax.kafka.consume.spark_sources import KafkaMember, KafkaRange
from hapax.kafka.properties import consumer_properties, lane_id, transactional_id
from hapax.sandbox import Sandbox, SandboxTopic
from hapax.settings import load_settings
from hapax.wiring.task import RangeTask
from tests.kit.parts import Quiet, source_of
from tests.kit.topics import committed, read_back

JOIN_TIMEOUT_S = 60.0


class Application:
    """Topics, settings and members of one application; ``close`` leaves nothing behind."""

    def __init__(self, sandbox: Sandbox, app: str, *, partitions: int = 2, **settings: str) -> None:
        self.app, self.bootstrap = app, sandbox.bootstrap_servers
        self.input, self.output, self.dead = (f"{app}-{name}" for name in ("in", "out", "dead"))
        sandbox.create_topics(
            SandboxTopic(self.input, partitions),
            SandboxTopic(self.output, 1, {"max.message.bytes": "300000"}),
            SandboxTopic(self.dead),
        )
        self.partitions = [(self.input, number) for number in range(partitions)]
        self.settings = self.with_settings(**settings)
        self._members: list[KafkaMember] = []
        self._ranges: list[KafkaRange] = []

    def with_settings(self, **settings: str) -> Any:
        return load_settings(
            {
                "HAPAX_APP": self.app,
                "HAPAX_INSTANCE": "driver",
                "HAPAX_ENGINE": "spark",
                "HAPAX_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap,
                "HAPAX_INPUT__TOPICS": self.input,
                "HAPAX_OUTPUT__TOPIC": self.output,
                "HAPAX_DEAD_LETTER__TOPIC": self.dead,
                "HAPAX_GROUP__MEMBERSHIP": "dynamic",
                "HAPAX_GROUP__SESSION_TIMEOUT": "6s",  # heartbeats, so rebalances, follow it
                "HAPAX_TRANSACTION__TIMEOUT": "5s",
                "HAPAX_TRANSFORM": "tests.kit.spark_business:spell",
                **settings,
            }
        )

    # -- the driver -----------------------------------------------------------------------

    def member(self, count: int | None = None, *, start: str = "earliest") -> KafkaMember:
        """Return one more member, once it has ``count`` partitions (default: all)."""
        member = source_of(self.settings, KafkaMember, start)
        self._members.append(member)
        member.subscribe()
        self.settle(len(self.partitions) if count is None else count)
        return member

    def settle(self, newest: int) -> None:
        deadline_s = time.monotonic() + JOIN_TIMEOUT_S
        while True:
            for member in self._members:
                member.attend(0.05)
            shares = [len(member.assignment()) for member in self._members]
            if shares[-1] == newest and sum(shares) == len(self.partitions):
                return
            assert time.monotonic() < deadline_s, f"shares are {shares}"

    def leave(self, member: KafkaMember) -> None:
        self._members.remove(member)
        member.close()

    def commit(self, progress: Progress) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.app})
        offsets = [TopicPartition(*where, offset) for where, offset in progress.items()]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()

    # -- tasks ----------------------------------------------------------------------------

    def plan(self, member: KafkaMember, **facts: Any) -> RangePlan:
        ours = sorted(member.assignment())
        defaults: dict[str, Any] = {
            "lane": 0,
            "member": member.member(),
            "starts": member.committed(ours),
            "ends": self.ends(member, ours),
            "duration_s": 30.0,
            "pace": 500,
        }
        return RangePlan(**(defaults | facts))

    def ends(self, member: KafkaMember, partitions: list[Where]) -> Progress:
        """Return the ends of all of them; the member leaves out what it is not told at once."""
        deadline_s = time.monotonic() + JOIN_TIMEOUT_S
        while len(ends := member.stable_ends(partitions)) < len(partitions):
            assert time.monotonic() < deadline_s, f"ends are {ends}"
        return ends

    def run(self, plan: RangePlan, **settings: str) -> RangeReport:
        return RangeTask(self.with_settings(**settings) if settings else self.settings, plan).run()

    def range(
        self, starts: Mapping[Where, int | None], member: bytes, start: str = "earliest"
    ) -> KafkaRange:
        made = KafkaRange(
            consumer_properties(self.settings),
            starts,
            member=member,
            start=start,
            logger=Quiet(),
            clock=time,
            watch=lambda _call: nullcontext(),
        )
        self._ranges.append(made)
        return made

    @property
    def lane(self) -> str:
        """The transactional id of lane 0."""
        return lane_id(self.settings, 0)

    @property
    def worker(self) -> str:
        """The transactional id of a worker of our name."""
        return transactional_id(self.settings)

    # -- judging --------------------------------------------------------------------------

    def committed(self) -> dict[int, int | None]:
        return committed(self.bootstrap, self.app, self.input)

    def outputs(self) -> list[Record]:
        return read_back(self.bootstrap, self.output)

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.outputs()]

    def letters(self) -> list[bytes | None]:
        return [record.value for record in read_back(self.bootstrap, self.dead)]

    def close(self) -> None:
        for source in (*self._members, *self._ranges):
            source.close()


def taken(source: KafkaRange, count: int) -> list[Record]:
    records: list[Record] = []
    deadline_s = time.monotonic() + JOIN_TIMEOUT_S
    while len(records) < count:
        records += source.take(100, 0.1).records
        assert time.monotonic() < deadline_s, f"{len(records)} of {count} records came"
    return records
