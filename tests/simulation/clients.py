"""What both kinds of groups share: their clients, and a deal in which few partitions move."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import MemberFencedError
from hapax.testing.broker import Shift

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hapax.core.ports import Clock
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


class Group(ABC):
    """A group and its clients; what a coordinator does is up to each kind."""

    def __init__(
        self,
        inputs: Sequence[TopicPartition],
        clock: Clock,
        timing: Timing,
        instance_of: Callable[[str], str | None] = lambda _name: None,
    ) -> None:
        """``instance_of``: the static name of a client, None for a dynamic member."""
        self.rebalances = 0
        self.silent_until_s: dict[str, float] = {}
        self._inputs = inputs
        self._clock = clock
        self._timing = timing
        self._instance_of = instance_of
        self._clients: dict[str, Client] = {}
        self._count = 0

    @abstractmethod
    def join(self, name: str) -> None:
        """Add a client as a member."""

    @abstractmethod
    def beat(self, name: str) -> None:
        """Send a heartbeat, and whatever its answer asks for."""

    def shift(self, name: str, owned: frozenset[TopicPartition]) -> Shift:
        """Serve a poll."""
        client = self._client(name)
        client.polled_s = self._clock.monotonic()
        self.beat(name)
        lost = client.lose(owned)
        if client.member_id is None and not self._silent(name):
            self.join(name)
            self.beat(name)
        shift = client.apply(lost)
        if shift.revoked:
            self._gave_up(client)
        return shift

    def forget(self, name: str) -> None:
        """Let a client end; its seat stays until the session times out."""
        self._clients.pop(name, None)

    def leave(self, name: str) -> None:
        """Close a client; a static member's seat waits for it."""
        client = self._clients.pop(name, None)
        if client is not None and client.instance is None and client.member_id is not None:
            self._remove(client.member_id)

    def expel(self, name: str) -> None:
        """Drop a member, as a missed session timeout does."""
        client = self._clients.get(name)
        if client is not None and client.member_id is not None:
            self._remove(client.member_id)

    def identity(self, name: str) -> tuple[str, int]:
        """Return member id and generation, or epoch, as the client knows them."""
        client = self._client(name)
        return client.member_id or "", client.generation

    @abstractmethod
    def _remove(self, member_id: str) -> None:
        """Take a member's seat away."""

    def _gave_up(self, client: Client) -> None:
        """Say at once what the application has given up."""
        self.beat(client.name)

    def _silent(self, name: str) -> bool:
        """Whether coordinator and client cannot hear each other."""
        return self._clock.monotonic() < self.silent_until_s.get(name, 0.0)

    def _client(self, name: str) -> Client:
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = Client(name, self._instance_of(name))
            client.polled_s = self._clock.monotonic()
        return client


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
