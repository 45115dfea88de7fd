"""A mutant that commits batch n while n + 1 is under way, and lets neither wait for the other."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.wiring import builders as parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.offset_commit import OffsetCommit
    from hapax.core.ports import Message
    from hapax.kafka.produce.transaction import KafkaTransaction


def two_transactions_without_gate() -> None:
    """Two producers take turns; a commit that fails is found out too late."""
    transaction = parts.transaction

    def both(shared: Any, source: Any) -> Any:
        lanes: list[Any] = [transaction(shared, source) for _ in range(2)]
        for number, lane in enumerate(lanes):
            properties: Any = lane._properties
            lane._properties = properties | {
                "transactional.id": f"{properties['transactional.id']}-lane-{number}"
            }
        return _TakingTurns(lanes)

    parts.transaction = both


class _TakingTurns:
    """A Transaction whose commit goes on beside the next batch."""

    def __init__(self, lanes: list[Any]) -> None:
        self._lanes: list[KafkaTransaction] = lanes
        self._commits: list[threading.Thread | None] = [None, None]
        self._turn = 0

    @property
    def doubts(self) -> Sequence[str]:
        return self._lane.doubts

    one_by_one = True

    @property
    def age_s(self) -> float:
        return self._lane.age_s

    @property
    def _lane(self) -> KafkaTransaction:
        return self._lanes[self._turn]

    def open(self) -> Any:
        return [lane.open() for lane in self._lanes][-1]

    def begin(self) -> None:
        self._turn = 1 - self._turn
        pending = self._commits[self._turn]
        if pending is not None:
            pending.join()
        self._lane.begin()

    def send(self, messages: Sequence[Message]) -> None:
        self._lane.send(messages)

    def send_offsets(self, commit: OffsetCommit) -> None:
        self._lane.send_offsets(commit)

    def abort(self) -> None:
        self._lane.abort()

    def commit(self) -> None:
        commit = threading.Thread(target=_commit, args=(self._lane,), daemon=True)
        self._commits[self._turn] = commit
        commit.start()

    def close(self) -> None:
        for commit in self._commits:
            if commit is not None:
                commit.join()
        for lane in self._lanes:
            lane.close()


def _commit(lane: KafkaTransaction) -> None:
    with suppress(BatchAbortedError, ProducerDeadError):
        lane.commit()
