"""The classic group protocol, cooperative: generations, a barrier, static and dynamic members."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import BatchAbortedError
from hapax.testing.broker import UNFENCED
from tests.simulation.clients import NONE, Group, Places, deal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hapax.core.ports import Clock
    from hapax.core.records import TopicPartition
    from tests.simulation.clients import Client, Timing


class Seat(msgspec.Struct):
    """A member as the coordinator knows it. ``joined``: what it owned when it joined this round."""

    instance: str | None
    heard_s: float
    assignment: Places = NONE
    joined: Places | None = None


class ClassicGroup(Group):
    """Members join, all of them, before a new generation begins.

    A partition that somebody still owns is not given to another: its owner gives it up first and
    joins once more. A static member that comes back takes its seat over, without a rebalance, and
    whoever sat there is fenced.
    """

    def __init__(
        self,
        inputs: Sequence[TopicPartition],
        clock: Clock,
        timing: Timing,
        instance_of: Callable[[str], str | None],
    ) -> None:
        super().__init__(inputs, clock, timing, instance_of)
        self.generation = 0
        self._seats: dict[str, Seat] = {}
        self._instances: dict[str, str] = {}
        self._deadline_s = math.inf  # of the round of joins; infinite while there is none

    # -- clients --------------------------------------------------------------------------

    def join(self, name: str) -> None:
        """Add a client as a member."""
        client = self._client(name)
        client.held = NONE
        if client.instance in self._instances:
            client.member_id = self._take_over(client.instance)
        else:
            client.member_id = self._sit(Seat(client.instance, self._clock.monotonic()))
            self._rebalance()
        client.generation = -1

    def beat(self, name: str) -> None:
        """Send a heartbeat, and whatever its answer asks for."""
        client = self._client(name)
        self.tick()
        if client.member_id is None or self._silent(name):
            return
        seat = self._seats.get(client.member_id)
        if seat is None:
            taken = client.instance is not None and client.instance in self._instances
            client.forget_membership(fenced=taken)
            return
        now_s = self._clock.monotonic()
        if now_s - client.polled_s > self._timing.poll_max_s:
            if client.instance is None:
                self._remove(client.member_id)
            client.forget_membership()
            return
        seat.heard_s = now_s
        if self._deadline_s < math.inf and seat.joined is None and client.granted is None:
            seat.joined = client.held
            self._complete_when_all_joined()
        if self._deadline_s == math.inf and client.generation != self.generation:
            client.generation = self.generation
            client.granted = seat.assignment

    def double_join(self, name: str) -> None:
        """Let the client's last join arrive a second time: another id takes its static seat."""
        client = self._clients.get(name)
        if client is not None and client.instance is not None and client.member_id in self._seats:
            client.doubled = True
            self._take_over(client.instance)

    def adopt_orphans(self, name: str) -> list[TopicPartition]:
        """Leave everything and join again when partitions of a stable group belong to nobody.

        A static member that dies between two rounds of a rebalance comes back into a group that
        takes itself for stable, while nobody has what the member was about to give up.
        """
        client = self._client(name)
        seat = self._seats.get(client.member_id or "")
        if seat is None or seat.instance is None or self._deadline_s < math.inf:
            return []
        owned = NONE.union(*(each.assignment for each in self._seats.values()))
        orphans = [where for where in self._inputs if where not in owned]
        if orphans:
            client.granted = NONE
            if not client.held:
                self._rebalance()
        return orphans

    def admit(self, member: tuple[str, int], _progress: Mapping[TopicPartition, int]) -> None:
        """Refuse strangers and old generations; who owns a partition is not asked."""
        self.tick()
        if member == UNFENCED:
            return
        if member[0] not in self._seats:
            raise BatchAbortedError("UNKNOWN_MEMBER_ID")
        if member[1] != self.generation:
            raise BatchAbortedError("ILLEGAL_GENERATION")

    # -- coordinator ----------------------------------------------------------------------

    def tick(self) -> None:
        """Expel who was silent for too long, and who lets a rebalance wait for too long."""
        now_s = self._clock.monotonic()
        silent_s = now_s - self._timing.session_s
        for member_id in [each for each, seat in self._seats.items() if seat.heard_s < silent_s]:
            self._remove(member_id)
        if now_s > self._deadline_s:
            for member_id in [each for each, seat in self._seats.items() if seat.joined is None]:
                self._remove(member_id)

    def _gave_up(self, client: Client) -> None:
        if client.member_id in self._seats:
            self._rebalance()
            self.beat(client.name)

    def _take_over(self, instance: str) -> str:
        seat = self._seats.pop(self._instances[instance])
        return self._sit(Seat(instance, self._clock.monotonic(), seat.assignment))

    def _sit(self, seat: Seat) -> str:
        self._count += 1
        member_id = f"m{self._count}"
        self._seats[member_id] = seat
        if seat.instance is not None:
            self._instances[seat.instance] = member_id
        return member_id

    def _remove(self, member_id: str) -> None:
        seat = self._seats.pop(member_id, None)
        if seat is None:
            return
        if seat.instance is not None:
            self._instances.pop(seat.instance, None)
        if self._deadline_s == math.inf:
            self._rebalance()
        self._complete_when_all_joined()

    def _rebalance(self) -> None:
        if self._deadline_s == math.inf:
            self._deadline_s = self._clock.monotonic() + self._timing.poll_max_s

    def _complete_when_all_joined(self) -> None:
        if any(seat.joined is None for seat in self._seats.values()):
            return
        self._deadline_s = math.inf
        self.generation += 1
        self.rebalances += 1
        if not self._seats:
            return
        owned = {each: seat.joined or NONE for each, seat in self._seats.items()}
        dealt = deal(owned, self._inputs)
        for member_id, seat in self._seats.items():
            others = NONE.union(*(places for each, places in owned.items() if each != member_id))
            seat.assignment = frozenset(dealt[member_id]) - others
            seat.joined = None
