"""A producer and the source whose progress it commits, put together as step 6 of the core does."""

from collections.abc import Mapping
from typing import Any

from hapax.core.offset_commit import Marks
from hapax.core.ports import send_progress
from hapax.core.records import TopicPartition


class Committing:
    """A transaction that is given progress; everything else is the transaction's own."""

    def __init__(self, transaction: Any, source: Any) -> None:
        self.transaction, self._source = transaction, source

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transaction, name)

    def send_offsets(
        self, progress: Mapping[TopicPartition, int], marks: Marks | None = None
    ) -> None:
        send_progress(self._source, self.transaction, progress, marks)
