"""Coordinators of simulated groups, of both protocols, and what clients hold of them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import msgspec

from hapax.core.errors import BatchAbortedError, MemberFencedError
from hapax.core.ports import Clock
from hapax.core.records import TopicPartition
from hapax.testing.broker import UNFENCED, Shift

# -- What both kinds of groups share: their clients, and a deal in which few partitions move


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
        self._clients.pop(name, None)

    def leave(self, name: str) -> None:
        """Close a client; a static member's seat waits for it."""
        client = self._clients.pop(name, None)
        if client is not None and client.instance is None and client.member_id is not None:
            self._remove(client.member_id)

    def expel(self, name: str) -> None:
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
            kept[min(members, key=lambda each: (len(kept[each]), each))].add(place)
    return kept


# -- The classic group protocol, cooperative: generations, a barrier, static and dynamic members.


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
        client = self._client(name)
        client.held = NONE
        if client.instance in self._instances:
            client.member_id = self._take_over(client.instance)
        else:
            client.member_id = self._sit(Seat(client.instance, self._clock.monotonic()))
            self._rebalance()
        client.generation = -1

    def beat(self, name: str) -> None:
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


# -- The consumer group protocol of KIP-848: each member has its own epoch and moves by itself.


class ConsumerSeat(msgspec.Struct):
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

    def __init__(self, inputs: Sequence[TopicPartition], clock: Clock, timing: Timing) -> None:
        super().__init__(inputs, clock, timing)
        self._seats: dict[str, ConsumerSeat] = {}
        self._owners: dict[TopicPartition, str] = {}
        self._epoch = 0
        self.together = False
        """Partitions of one number go to one member, as by the assignor ``range``, one by one."""

    # -- clients --------------------------------------------------------------------------

    def join(self, name: str) -> None:
        client = self._client(name)
        self._count += 1
        client.member_id = f"m{self._count}"
        client.generation = 0
        client.held = NONE
        now_s = self._clock.monotonic()
        self._seats[client.member_id] = ConsumerSeat(now_s, now_s)
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

    def _reconcile(self, member_id: str, seat: ConsumerSeat, held: Places) -> None:
        """Move one member a step towards its target."""
        for where in [where for where, owner in self._owners.items() if owner == member_id]:
            if where not in seat.assigned and where not in held:
                del self._owners[where]
        most = 1 if self.together else None
        for where in sorted(seat.assigned.keys() - seat.target)[:most]:
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
                if self.together:
                    break

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
        topics = {topic for topic, _number in self._inputs}
        places = [at for at in self._inputs if not self.together or at[0] == min(topics)]
        owned = {each: frozenset(places) & {*seat.assigned} for each, seat in self._seats.items()}
        for member_id, dealt in deal(owned, places).items():
            whole = ((topic, number) for _first, number in dealt for topic in topics)
            self._seats[member_id].target = frozenset(whole if self.together else dealt)
