"""What both kinds of groups share: clients, and dealing partitions so that few of them move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import MemberFencedError
from hapax.testing.group import Shift

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.records import TopicPartition

Places = frozenset[tuple[str, int]]
NONE: Places = frozenset()


class Timing(msgspec.Struct, frozen=True):
    """Simulated seconds.

    session_s   a member that is silent for longer is expelled
    poll_max_s  a client that does not poll for longer leaves; also how long a rebalance waits
    """

    session_s: float = 1.0
    poll_max_s: float = 3.0


class Client(msgspec.Struct):
    """A consumer in a process: what it knows of the group.

    instance  the static name, None for a dynamic member
    held      the partitions that the application has been given
    granted   an assignment that the application has not been told yet
    doubled   whether its own join was sent twice
    """

    name: str
    instance: str | None
    member_id: str | None = None
    generation: int = -1
    held: Places = NONE
    granted: Places | None = None
    fenced: bool = False
    doubled: bool = False
    polled_s: float = 0.0

    def forget_membership(self, *, fenced: bool = False) -> None:
        """Take note that the group does not know us any more."""
        self.member_id, self.generation, self.granted, self.fenced = None, -1, None, fenced

    def lose(self, owned: Places) -> list[TopicPartition]:
        """Return what was lost without a word; raise MemberFencedError when our name was taken."""
        if self.fenced:
            raise MemberFencedError("FENCED_INSTANCE_ID", explained=self.doubled)
        self.held = owned
        if self.member_id is not None or not owned:
            return []
        self.held = NONE
        return sorted(owned)

    def apply(self, lost: list[TopicPartition]) -> Shift:
        """Tell the application what it has been granted."""
        if self.granted is None:
            return Shift(bool(lost), [], [], lost)
        granted, self.granted = self.granted, None
        owned, self.held = self.held, granted
        return Shift(
            rebalanced=True,
            assigned=sorted(granted - owned),
            revoked=sorted(owned - granted),
            lost=lost,
        )


def deal(
    owned: Mapping[str, Places], places: Sequence[TopicPartition]
) -> dict[str, set[TopicPartition]]:
    """Share out evenly by member; members keep what they own, as far as it is their share."""
    members = sorted(owned)
    least, extra = divmod(len(places), len(members))
    kept: dict[str, set[TopicPartition]] = {}
    taken: set[TopicPartition] = set()
    for member in sorted(members, key=lambda each: (-len(owned[each]), each)):
        share = least + (1 if extra > 0 else 0)
        kept[member] = set(sorted(owned[member] - taken)[:share])
        if len(kept[member]) > least:
            extra -= 1
        taken |= kept[member]
    for place in places:
        if place not in taken:
            fewest = min(members, key=lambda each: (len(kept[each]), each))
            kept[fewest].add(place)
    return kept
