"""Offsets of logs for an examination: two looks at their ends, and where an age begins.

The client's admin call for offsets is not used; end_offsets.py says why. Partitions whose leader is
away are left out by the caller: one of them holds up all others of a call.
"""

from __future__ import annotations

import time
from collections.abc import Mapping  # noqa: TC003 - msgspec reads it
from typing import TYPE_CHECKING, Any

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from hapax.core.cluster_state import Log
from hapax.core.committed_metadata import CommittedMetadata
from hapax.core.partition_offsets import LogOffsets
from hapax.kafka.errors import describe
from hapax.kafka.properties import build

if TYPE_CHECKING:
    from hapax.core.cluster_state import TopicPartition as Where

CALL_TIMEOUT_S = 2.0
_LATEST, _EARLIEST = -1, -2

Offsets = dict["Where", int]


class Asked(msgspec.Struct, frozen=True):
    """What is wanted.

    partitions  by leader, so that those of one broker do not wait for another
    inputs      partitions whose committed offset is asked for
    ages_ms     by topic: ages whose first offsets are asked for
    pause_s     between the two looks at the last stable offsets
    """

    partitions: Mapping[int, list[Where]]
    inputs: list[Where]
    ages_ms: Mapping[str, tuple[int, ...]]
    pause_s: float


class Logs:
    """Asks for offsets. ``untold`` says what could not be had."""

    def __init__(self, properties: Mapping[str, Any], budget_s: float) -> None:
        self._deadline_s = time.monotonic() + budget_s
        self._open = build(Consumer, {**properties, "isolation.level": "read_uncommitted"}, None)
        self._stable = build(Consumer, {**properties, "isolation.level": "read_committed"}, None)
        self.untold: dict[str, str] = {}
        self._clusters: dict[Where, str | None] = {}

    def close(self) -> None:
        """Close the connections."""
        self._open.close()
        self._stable.close()

    def look(self, asked: Asked) -> dict[Where, Log]:
        """Return what is known of each partition."""
        # The committed offset first, the ends after it: so an offset is never beyond its log.
        committed = self._committed(asked.inputs)
        # The stable end first, the high after it, and the stable one again at the very end: a
        # transaction that is seen open was open all the time.
        stable = self._offsets(self._stable, asked, _LATEST)
        began_s = time.monotonic()
        high, low = (self._offsets(self._open, asked, spec) for spec in (_LATEST, _EARLIEST))
        since = self._since(asked, high)
        later: Offsets = {}
        if any(high.get(where, 0) > offset for where, offset in stable.items()):
            time.sleep(max(0.0, asked.pause_s - (time.monotonic() - began_s)))
            later = self._offsets(self._stable, asked, _LATEST)
        return {
            where: Log(
                offsets=_joined(low.get(where), stable.get(where), high.get(where)),
                last_stable_later=later.get(where),
                committed=committed.get(where),
                since=since.get(where, {}),
                cluster_id=self._clusters.get(where),
            )
            for partitions in asked.partitions.values()
            for where in partitions
        }

    def _since(self, asked: Asked, high: Offsets) -> dict[Where, dict[int, int]]:
        found: dict[Where, dict[int, int]] = {}
        now_ms = int(time.time() * 1000)
        for rank in range(max((len(ages) for ages in asked.ages_ms.values()), default=0)):
            ages = {name: ages[rank] for name, ages in asked.ages_ms.items() if rank < len(ages)}
            for leader, partitions in asked.partitions.items():
                wanted = {
                    where: now_ms - ages[where[0]] for where in partitions if where[0] in ages
                }
                for where, offset in self._ask(self._open, leader, wanted).items():
                    # No record is that young: then the age begins behind all of them.
                    at = offset if offset >= 0 else high.get(where)
                    if at is not None:
                        found.setdefault(where, {})[ages[where[0]]] = at
        return found

    def _offsets(self, consumer: Consumer, asked: Asked, spec: int) -> Offsets:
        return {
            where: offset
            for leader, partitions in asked.partitions.items()
            for where, offset in self._ask(
                consumer, leader, dict.fromkeys(partitions, spec)
            ).items()
            if offset >= 0
        }

    def _ask(self, consumer: Consumer, leader: int, wanted: Mapping[Where, int]) -> Offsets:
        if not wanted:
            return {}
        asked = [TopicPartition(*where, time_ms) for where, time_ms in wanted.items()]
        try:
            answers = consumer.offsets_for_times(asked, timeout=self._left_s())
        except KafkaException as error:
            self.untold[f"offsets of broker {leader}"] = describe(error.args[0])
            return {}
        found: Offsets = {}
        for one in answers:
            if one.error is not None:
                self.untold[f"offsets of {one.topic}/{one.partition}"] = describe(one.error)
            else:
                found[(one.topic, one.partition)] = one.offset
        return found

    def _committed(self, inputs: list[Where]) -> Offsets:
        if not inputs:
            return {}
        try:
            answers = self._open.committed([TopicPartition(*one) for one in inputs], self._left_s())
        except KafkaException as error:
            self.untold["committed offsets"] = describe(error.args[0])
            return {}
        for one in answers:
            if one.error is not None:
                self.untold["committed offsets"] = describe(one.error)
            elif one.offset >= 0:
                beside = CommittedMetadata.decode(one.metadata)
                self._clusters[(one.topic, one.partition)] = beside.cluster_id
        return {
            (one.topic, one.partition): one.offset
            for one in answers
            if one.error is None and one.offset >= 0
        }

    def _left_s(self) -> float:
        return max(0.1, min(CALL_TIMEOUT_S, self._deadline_s - time.monotonic()))


def _joined(low: int | None, stable: int | None, high: int | None) -> LogOffsets | None:
    """Return offsets of which each is known; None otherwise."""
    if low is None or stable is None or high is None:
        return None
    return LogOffsets.of(low, stable, high)
