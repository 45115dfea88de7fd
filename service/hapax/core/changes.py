"""What a source reports between two batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from hapax.core.records import TopicPartition


class Changes(msgspec.Struct, gc=False):
    """What rebalances and the client's events brought since the engine last asked.

    ``assigned`` is None when there was no assignment, and empty when a standby got none.
    ``passing``: errors that heal within a moment, as every start meets them; no warning.
    ``routes_lost``: partitions whose records did not arrive at the native path for a moment.
    ``native_left``: why the native path is not taken any more.
    """

    assigned: list[TopicPartition] | None = None
    revoked: list[TopicPartition] = msgspec.field(default_factory=list)
    lost: list[TopicPartition] = msgspec.field(default_factory=list)
    errors: list[str] = msgspec.field(default_factory=list)
    passing: list[str] = msgspec.field(default_factory=list)
    repeated: dict[TopicPartition, int] = msgspec.field(default_factory=dict)
    routes_lost: list[TopicPartition] = msgspec.field(default_factory=list)
    native_left: str = ""


class Stuck(NamedTuple):
    """A set of records that the client cannot decode: nothing beyond it is read.

    offset  of its first record
    reason  in the client's words
    """

    offset: int
    reason: str


class Answered(Protocol):
    """Part of the port Source: whether brokers still answer its client."""

    @property
    def answered(self) -> bool:
        """Whether a broker has answered when it was last asked."""

    def cut_off(self, *, now: bool = False) -> bool:
        """Whether no broker answers this client any more, and new ones are answered.

        Cheap: brokers are asked now and then. ``now``: at once, for there is a reason.
        """
