"""A consumer group in memory: its members, what each owns, and whose offsets it accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from hapax.core.errors import BatchAbortedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.records import TopicPartition


UNFENCED = ("", -1)
"""Who names no member is believed, even while the group has live members (measured)."""


class Shift(msgspec.Struct):
    """What a member learns when it asks the group; a rebalance may give it nothing."""

    rebalanced: bool
    assigned: list[TopicPartition]
    revoked: list[TopicPartition]
    lost: list[TopicPartition]


class MemoryGroup(Protocol):
    """The coordinator, and what the clients know of it. ``name`` is that of one client."""

    def join(self, name: str) -> None:
        """Add a client as a member."""

    def shift(self, name: str, owned: frozenset[TopicPartition]) -> Shift:
        """Serve a poll of a client that holds ``owned``; the first one joins.

        Raises MemberFencedError when its instance belongs to another client by now.
        """

    def expel(self, name: str) -> None:
        """Drop a member, as a missed session timeout does."""

    def leave(self, name: str) -> None:
        """Close a client: a member leaves the group unless its instance is static."""

    def forget(self, name: str) -> None:
        """End a client without LeaveGroup; the next of this name joins again."""

    def adopt_orphans(self, name: str) -> list[TopicPartition]:
        """Start a rebalance when partitions are unassigned; return those."""

    def identity(self, name: str) -> tuple[str, int]:
        """Return what a client knows: its member id, and its generation; -1: it is no member."""

    def admit(self, member: tuple[str, int], progress: Mapping[TopicPartition, int]) -> None:
        """Raise BatchAbortedError unless ``(member id, generation)`` is believed, or UNFENCED."""


class MemoryMember(msgspec.Struct):
    """What the group knows of a member: its target, and the generation it has been sent."""

    target: frozenset[TopicPartition] = frozenset()
    generation: int = -1


class InstantGroup:
    """The shortest rules: every change reassigns at once, and only the newest generation counts.

    A partition is given only when no other member still holds it.
    """

    def __init__(self, inputs: Sequence[TopicPartition]) -> None:
        self.members: dict[str, MemoryMember] = {}
        self.owners: dict[TopicPartition, str] = {}
        self.newest = 0
        self._inputs = inputs

    def join(self, name: str) -> None:
        """Add a member; partitions are assigned again."""
        self.members[name] = MemoryMember()
        self._deal()

    def expel(self, name: str) -> None:
        """Drop a member, as a missed session timeout or a clean leave does."""
        if self.members.pop(name, None) is not None:
            self.owners = {where: owner for where, owner in self.owners.items() if owner != name}
            self._deal()

    leave = forget = expel

    def shift(self, name: str, owned: frozenset[TopicPartition]) -> Shift:
        """Return what a member gives up and what it gets."""
        lost: list[TopicPartition] = []
        if name not in self.members:
            lost, owned = sorted(owned), frozenset()
            self.join(name)
        member = self.members[name]
        rebalanced = member.generation != self.newest
        member.generation = self.newest
        revoked = sorted(owned - member.target)
        for where in revoked:
            self.owners.pop(where, None)
        assigned = sorted(member.target - owned - self.owners.keys())
        self.owners.update(dict.fromkeys(assigned, name))
        return Shift(rebalanced or bool(assigned), assigned, revoked, lost)

    def adopt_orphans(self, _name: str) -> list[TopicPartition]:
        """Return nothing: every change is dealt with at once."""
        return []

    def identity(self, name: str) -> tuple[str, int]:
        """Return the name, and the generation that it was last sent."""
        member = self.members.get(name)
        return name, -1 if member is None else member.generation

    def admit(self, member: tuple[str, int], _progress: Mapping[TopicPartition, int]) -> None:
        """Refuse all but live members of the newest generation."""
        if member == UNFENCED:
            return
        if member[0] not in self.members or member[1] != self.newest:
            raise BatchAbortedError("ILLEGAL_GENERATION")

    def _deal(self) -> None:
        self.newest += 1
        names = sorted(self.members)
        for place, name in enumerate(names):
            self.members[name].target = frozenset(self._inputs[place :: len(names)])
