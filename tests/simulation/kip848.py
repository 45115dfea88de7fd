"""The consumer group protocol of KIP-848: each member has its own epoch and moves by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import BatchAbortedError
from hapax.testing.broker import UNFENCED
from tests.simulation.clients import NONE, Group, Places, deal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.ports import Clock
    from hapax.core.records import TopicPartition
    from tests.simulation.clients import Timing


class Seat(msgspec.Struct):
    """A member as the coordinator knows it.

    assigned      by partition the epoch at which it was assigned
    target        what the member will have in the end
    reconciled_s  when it last had nothing to give up
    """

    heard_s: float
    reconciled_s: float
    epoch: int = 0
    assigned: dict[tuple[str, int], int] = msgspec.field(default_factory=dict)
    target: Places = NONE


class ConsumerGroup(Group):
    """Nobody waits for anybody: a member gives up first, then its epoch moves on.

    Progress is believed to the member's own epoch, for any partition, and to an older one for
    partitions that it has held since (KIP-1251).
    """

    def __init__(
        self,
        inputs: Sequence[TopicPartition],
        clock: Clock,
        timing: Timing,
    ) -> None:
        super().__init__(inputs, clock, timing)
        self._seats: dict[str, Seat] = {}
        self._owners: dict[TopicPartition, str] = {}
        self._epoch = 0

    # -- clients --------------------------------------------------------------------------

    def join(self, name: str) -> None:
        """Add a client as a member."""
        client = self._client(name)
        self._count += 1
        client.member_id = f"m{self._count}"
        client.generation = 0
        client.held = NONE
        now_s = self._clock.monotonic()
        self._seats[client.member_id] = Seat(now_s, now_s)
        self._deal()

    def beat(self, name: str) -> None:
        """Send a heartbeat with what the client holds; learn epoch and assignment."""
        client = self._client(name)
        self.tick()
        if client.member_id is None or self._silent(name):
            return
        seat = self._seats.get(client.member_id)
        now_s = self._clock.monotonic()
        late = now_s - client.polled_s > self._timing.poll_max_s
        if seat is None or late:
            self._remove(client.member_id)
            client.forget_membership()
            return
        seat.heard_s = now_s
        self._reconcile(client.member_id, seat, client.held)
        client.generation = seat.epoch
        assigned = frozenset(seat.assigned)
        client.granted = None if assigned == client.held else assigned

    def double_join(self, name: str) -> None:
        """Do nothing: a member id is the client's own, so a join that comes twice is the same."""

    def adopt_orphans(self, _name: str) -> list[TopicPartition]:
        """Return nothing: the coordinator deals by itself."""
        return []

    def admit(self, member: tuple[str, int], progress: Mapping[TopicPartition, int]) -> None:
        """Refuse strangers, and old epochs unless the partitions are held since."""
        self.tick()
        if member == UNFENCED:
            return
        seat = self._seats.get(member[0])
        if seat is None:
            raise BatchAbortedError("UNKNOWN_MEMBER_ID")
        epoch = member[1]
        if epoch == seat.epoch:
            return
        held = all(seat.assigned.get(where, epoch + 1) <= epoch for where in progress)
        if epoch > seat.epoch or not held:
            raise BatchAbortedError("ILLEGAL_GENERATION")

    # -- coordinator ----------------------------------------------------------------------

    def tick(self) -> None:
        """Expel who was silent for too long, and who does not give up what it should."""
        now_s = self._clock.monotonic()
        for member_id, seat in list(self._seats.items()):
            silent = seat.heard_s < now_s - self._timing.session_s
            if silent or seat.reconciled_s < now_s - self._timing.poll_max_s:
                self._remove(member_id)

    def _reconcile(self, member_id: str, seat: Seat, held: Places) -> None:
        """Move one member a step towards its target."""
        mine = [where for where, owner in self._owners.items() if owner == member_id]
        for where in mine:
            if where not in seat.assigned and where not in held:
                del self._owners[where]
        for where in [where for where in seat.assigned if where not in seat.target]:
            del seat.assigned[where]
            if where not in held:
                del self._owners[where]
        if any(
            owner == member_id and at not in seat.assigned for at, owner in self._owners.items()
        ):
            return  # it has to give up first; its epoch stays
        seat.reconciled_s = self._clock.monotonic()
        seat.epoch = self._epoch
        for where in sorted(seat.target - seat.assigned.keys()):
            if where not in self._owners:
                self._owners[where] = member_id
                seat.assigned[where] = seat.epoch

    def _remove(self, member_id: str) -> None:
        if self._seats.pop(member_id, None) is None:
            return
        self._owners = {at: owner for at, owner in self._owners.items() if owner != member_id}
        self._deal()

    def _deal(self) -> None:
        self._epoch += 1
        self.rebalances += 1
        if not self._seats:
            return
        owned = {each: frozenset(seat.assigned) for each, seat in self._seats.items()}
        for member_id, target in deal(owned, self._inputs).items():
            self._seats[member_id].target = frozenset(target)
