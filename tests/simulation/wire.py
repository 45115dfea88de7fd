"""The way from a process to coordinators, leaders, the claim store and whoever reads along."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hapax.core.errors import ClaimsUnavailableError, ProducerDeadError
from hapax.telemetry.events import Events
from tests.kit.doubles import CrashError
from tests.simulation.chance import CLAIMS, REQUESTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hapax.core.records import Coordinates, Record
    from hapax.testing.claims import MemoryClaims
    from tests.simulation.chance import Strike
    from tests.simulation.process import Process
    from tests.simulation.world import World

RESEND_S = 0.02
TOLD = frozenset(name for name in dir(Events) if not name.startswith("_"))


class Wire:
    """Carries the requests of one producer."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def __call__(self, kind: str, deliver: Callable[[], None], again: Callable[[], None]) -> None:
        """Bring one request of the producer to its coordinator or leader, and its answer back."""
        world = self._world
        strike = self._process.struck(REQUESTS, kind)
        self._process.pause(world.latency())
        while world.scheduler.now_s < world.brokers_away_until_s:
            self._wait_for_brokers(kind)
        if strike is not None:
            self._mistreat(kind, strike, deliver, again)
            return
        deliver()
        self._process.pause(world.latency())

    def _wait_for_brokers(self, kind: str) -> None:
        world, timeout_s = self._world, self._world.options.transaction_timeout_s
        left_s = world.brokers_away_until_s - world.scheduler.now_s
        self._process.pause(min(left_s, timeout_s))
        if left_s > timeout_s:
            raise ProducerDeadError(f"{kind}: no answer")

    def _mistreat(
        self, kind: str, strike: Strike, deliver: Callable[[], None], again: Callable[[], None]
    ) -> None:
        late = deliver
        if kind == "InitProducerId":
            late = partial(self._world.init_late, f"app-{self._process.instance}")
        match strike.kind:
            case "crash":
                self._crash(kind, strike, deliver, late)
            case "freeze" if strike.way < 0.5:
                self._process.freeze(strike.seconds)
                deliver()
            case "freeze":
                deliver()
                self._process.freeze(strike.seconds)
            case "unanswered":
                self._leave_unanswered(kind, strike, deliver, late)
            case "doubt" | "late":
                again()
                self._send_again(kind, strike, deliver, late)
            case _:
                deliver()
        self._process.pause(self._world.latency())

    def _crash(
        self, kind: str, strike: Strike, deliver: Callable[[], None], late: Callable[[], None]
    ) -> None:
        """End the process; its request is lost, under way, or has arrived."""
        match strike.choice("lost", "late", "arrived"):
            case "arrived":
                deliver()
            case "late":
                self._world.deliver_late(kind, late, strike.seconds)
        raise CrashError

    def _send_again(
        self, kind: str, strike: Strike, deliver: Callable[[], None], late: Callable[[], None]
    ) -> None:
        """Send it twice: the first is held and arrives late, or its answer was lost."""
        form = "held" if strike.kind == "late" else strike.choice("held", "answer lost", "both")
        if form != "held":
            deliver()
        if form != "answer lost":
            self._world.deliver_late(kind, late, strike.seconds)
        self._process.pause(RESEND_S)
        deliver()

    def _leave_unanswered(
        self, kind: str, strike: Strike, deliver: Callable[[], None], late: Callable[[], None]
    ) -> None:
        """Give no answer for longer than the client asks again."""
        form = strike.choice("lost", "delivered", "late")
        if form == "delivered":
            deliver()
        elif form == "late":
            self._world.deliver_late(kind, late, strike.seconds)
        self._process.pause(self._world.options.transaction_timeout_s)
        raise ProducerDeadError(f"{kind}: no answer")


class Travelling:
    """A claim on its way: it arrives when it arrives, whatever its sender does meanwhile.

    Two that are under way may arrive in any order, for each has a connection of its own.
    """

    def __init__(
        self, world: World, process: Process, deliver: Callable[[], Mapping[int, Coordinates]]
    ) -> None:
        self._world = world
        self._process = process
        self._deliver = deliver
        self._answer: Mapping[int, Coordinates] | ClaimsUnavailableError | None = None
        self._read = False
        arrives_s = world.scheduler.now_s + world.latency()
        world.scheduler.at(arrives_s, self._arrive)
        self._back_s = arrives_s + world.latency()

    def _arrive(self) -> None:
        try:
            self._answer = self._deliver()
        except ClaimsUnavailableError as error:
            self._answer = error

    def answer(self) -> Mapping[int, Coordinates]:
        wait_s = self._back_s - self._world.scheduler.now_s
        if wait_s > 0:
            self._process.pause(wait_s)
        else:
            self._world.count("claims ahead")
        self._read = True
        assert self._answer is not None
        if isinstance(self._answer, ClaimsUnavailableError):
            raise self._answer
        return self._answer

    def drop(self) -> None:
        if not self._read:
            self._world.count("claims given up")


class Store:
    """The claim store as one process reaches it."""

    def __init__(self, world: World, process: Process, claims: MemoryClaims) -> None:
        self._world = world
        self._process = process
        self._claims = claims.seen_by()

    def claim(
        self,
        ids: Sequence[bytes],
        records: Sequence[Record],
        replays: Mapping[int, Coordinates],
        gone: Sequence[Coordinates] = (),
    ) -> Mapping[int, Coordinates]:
        strike = self._process.struck(CLAIMS, "claim")
        self.ping()
        if strike is not None and strike.kind == "claims" and strike.seconds > 0.5:
            self._claims.lost_answers = 1
        return self._claims.claim(ids, records, replays, gone)

    def ask(
        self,
        ids: Sequence[bytes],
        records: Sequence[Record],
        replays: Mapping[int, Coordinates],
    ) -> Travelling:
        strike = self._process.struck(CLAIMS, "claim")
        lost = strike is not None and strike.kind == "claims" and strike.seconds > 0.5

        def deliver() -> Mapping[int, Coordinates]:
            self.ping()
            self._claims.lost_answers = int(lost)
            return self._claims.claim(ids, records, replays)

        return Travelling(self._world, self._process, deliver)

    def ping(self) -> None:
        if self._process.claims_away():
            raise ClaimsUnavailableError("away")


class Telling:
    """Takes every event that the real Events knows."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def loop_moved(self) -> None:
        """Nothing to tell."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in TOLD:
            raise AttributeError(name)
        world, process = self._world, self._process

        def tell(*values: object, **_named: object) -> None:
            world.count(name)
            if world.trace is not None:
                first = "" if not values else f": {str(values[0])[:100]}"
                world.tell(f"{process.name} {name}{first}")

        setattr(self, name, tell)
        return tell
