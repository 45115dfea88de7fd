"""A producer and the source whose progress it commits, put together as step 6 of the core does."""

from collections.abc import Mapping, Sequence
from typing import Any

from hapax.core.offset_commit import Marks
from hapax.core.ports import send_progress
from hapax.core.records import Message, TopicPartition


class Committing:
    """A transaction that is given progress; everything else is the transaction's own."""

    def __init__(self, transaction: Any, source: Any) -> None:
        self.transaction, self._source = transaction, source

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transaction, name)

    @property
    def doubts(self) -> Sequence[str]:
        doubts: Sequence[str] = self.transaction.doubts
        return doubts

    one_by_one = True

    @property
    def age_s(self) -> float:
        return float(self.transaction.age_s)

    def open(self) -> object:
        return self.transaction.open()

    def begin(self) -> None:
        self.transaction.begin()

    def send(self, messages: Sequence[Message]) -> None:
        self.transaction.send(messages)

    def send_offsets(
        self, progress: Mapping[TopicPartition, int], marks: Marks | None = None
    ) -> None:
        send_progress(self._source, self.transaction, progress, marks)

    def commit(self) -> None:
        self.transaction.commit()

    def abort(self) -> None:
        self.transaction.abort()
