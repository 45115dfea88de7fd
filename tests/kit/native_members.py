"""Members of a group that take records natively and commit what they took, in one thread."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING

from hapax.core.errors import BatchAbortedError
from hapax.core.record_path import RecordPath
from hapax.kafka.consume.source import KafkaSource
from hapax.kafka.native import record_path
from hapax.kafka.properties import consumer_properties
from tests.kit.parts import MachineClock, Quiet, settings_of
from tests.kit.rulebook_kafka import KafkaTopics
from tests.kit.topics import Given, produce

if TYPE_CHECKING:
    from hapax.core.ports import Batch
    from hapax.sandbox import Sandbox

SPREAD = 3
"""Records that are written to each partition at once."""


class Group(KafkaTopics):
    """A group of the classic protocol with an assignor, or of the consumer protocol.

    taken    how often each value was in a batch that was committed
    foreign  partitions of batches whose member did not own them
    native   how many records came natively, of all that came (total)
    """

    def __init__(self, sandbox: Sandbox, kind: str) -> None:
        super().__init__(sandbox)
        self._sandbox, self._kind = sandbox, kind
        self.members: list[KafkaSource] = []
        self.taken: Counter[bytes | None] = Counter()
        self.foreign: list[object] = []
        self.native = self.total = 0
        self._written = 0

    def join(self) -> KafkaSource:
        """Let one more member in; partitions come when all members are served."""
        protocol = "consumer" if self._kind == "consumer" else "classic"
        settings = settings_of(
            self._bootstrap,
            self.topic,
            self.target,
            self._app,
            HAPAX_FAST="on",
            HAPAX_INSTANCE=f"m{len(self.members)}",
            HAPAX_GROUP__MEMBERSHIP="dynamic",
            HAPAX_GROUP__PROTOCOL=protocol,
            HAPAX_DEDUP__ID="key",
        )
        properties = consumer_properties(settings)
        if protocol == "classic":
            properties["partition.assignment.strategy"] = self._kind
        member = KafkaSource(
            properties,
            [self.topic],
            start="earliest",
            logger=Quiet(),
            clock=MachineClock(),
            watch=lambda _call: nullcontext(),
            native=record_path(settings).path,
        )
        member.subscribe()
        self.members.append(member)
        return member

    def leave(self) -> None:
        """Let the oldest member go, with what it has taken and not committed."""
        member = self.members.pop(0)
        member.take(7, 0.0)
        member.close()

    def write_numbers(self) -> None:
        """Append numbers that were not written before to each partition."""
        numbers = range(self._written, self._written + 2 * SPREAD)
        self._written += 2 * SPREAD
        given = [Given(b"%d" % number, b"key", partition=number % 2) for number in numbers]
        produce(self._bootstrap, self.topic, *given)

    def serve(self, seconds: float) -> None:
        """Let members take and commit."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            for member in self.members:
                self._step(member)

    def _step(self, member: KafkaSource) -> None:
        batch = member.take(5, 0.02)
        changes = member.changes()
        if not batch.next:
            return
        self.foreign += [where for where in batch.first if where not in member.assignment()]
        try:
            member.commit(member.offset_commit(batch.next))
        except BatchAbortedError:  # a rebalance was in between: who owns it takes it again
            if not changes.revoked:
                member.rewind(batch.first)
            return
        self._count(batch)

    def _count(self, batch: Batch) -> None:
        self.total += len(batch.records)
        if isinstance(batch.records, RecordPath):
            self.native += len(batch.records)
        self.taken.update(record.value for record in batch.records)

    def play(self, rounds: int) -> None:
        """Let members come and go while records are written, then wait for all records."""
        self.join()
        for number in range(rounds):
            self.write_numbers()
            if number % 2 == 0:
                self.join()
            else:
                self.leave()
            self.serve(1.5)
            self.write_numbers()
            self.serve(1.0)
        until_s = time.monotonic() + 60
        while self.missing() and time.monotonic() < until_s:
            self.serve(0.2)

    def missing(self) -> list[int]:
        """Return the numbers that are not taken."""
        return [n for n in range(self._written) if not self.taken[b"%d" % n]]

    def doubled(self) -> list[bytes | None]:
        """Return what was in two batches that were committed."""
        return [value for value, count in self.taken.items() if count > 1]

    def close(self) -> None:
        for member in self.members:
            member.close()
        super().close()
