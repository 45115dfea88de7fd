"""One worker process: it gives way at every call of a port, and goes wrong where it is told to."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hapax.core import errors
from hapax.core.interrupt import Interrupt
from hapax.engines.lifecycle import Lifecycle
from hapax.testing.source import InjectedFault
from tests.kit.doubles import CrashError
from tests.simulation import business
from tests.simulation.assembly import assemble
from tests.simulation.chance import APPLY, BUSINESS, KEPT, REQUESTS, STEPS
from tests.simulation.scheduler import START_S

if TYPE_CHECKING:
    from hapax.core.records import Record
    from hapax.engines.state_restore import Keyed
    from hapax.processing.state import State
    from tests.simulation.chance import Strike
    from tests.simulation.world import World

HEARTBEAT_S = 0.2
OPENING_WAIT_S = 0.02
OPENING_MAX_S = 20.0


class Process:
    """One life of one instance. ``left``: why it ended; empty while it runs."""

    def __init__(self, world: World, instance: str, life: int, *, kept: bool) -> None:
        self.name = f"{instance}.{life}"
        self.instance = instance
        self.kept = kept
        self.left = ""
        self.killed = False
        self.keyed: Keyed | None = None
        self._world = world
        self._steps = 0
        self._frozen = False
        self._claims_away_until_s = 0.0
        self._alarm_s = 0.0
        self.interrupt = Interrupt()
        self.lifecycle = Lifecycle(
            world.scheduler, self.interrupt, timeout_s=world.options.shutdown_s, wait=self.pause
        )
        self._source, self._transaction, self._worker = assemble(world, self)

    @property
    def epoch(self) -> int | None:
        return self._transaction._epoch

    # -- the process ----------------------------------------------------------------------

    def main(self) -> None:
        """Live; called in a greenlet of its own."""
        try:
            self._serve()
            self.left = "drained"
        except CrashError:
            self.left = "crashed"
        except errors.StopError as error:
            self.left = f"{type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001 - any other end is a finding
            self.left = "undefined"
            self._world.judge.note("undefined-exit", f"{self.name}: {error!r}")
        self._world.ended(self)

    def beat(self) -> None:
        """Send the heartbeat that the client sends beside everything else."""
        world = self._world
        now_s = world.scheduler.now_s
        if self.left:
            return
        if not self._frozen and now_s >= world.brokers_away_until_s:
            world.group.beat(self.name)
        world.scheduler.at(now_s + HEARTBEAT_S, self.beat)

    def alarm(self, after_s: float, _interrupt: Interrupt) -> None:
        """Stand for the watchdog: business code that takes longer is cut."""
        self._alarm_s = self._world.scheduler.now_s + after_s

    def _serve(self) -> None:
        try:
            self._open()
            if not self.lifecycle.stopping:
                self._worker.run()
        except errors.StopError:
            self._close()
            raise
        self._close()

    def _close(self) -> None:
        self._source.close()
        if self.keyed is not None:
            self.keyed.hold.close()

    def _open(self) -> None:
        """Register the producer and join, as the start of the service does."""
        deadline_s = self._world.scheduler.now_s + OPENING_MAX_S
        while not self.lifecycle.stopping:
            try:
                self._transaction.open()
            except errors.ProducerDeadError as error:
                if self._world.scheduler.now_s > deadline_s:
                    raise errors.PreflightError([f"the producer cannot start: {error}"]) from error
            else:
                return
            try:
                self._source.attend(OPENING_WAIT_S)
            except errors.BatchAbortedError:
                pass
            except errors.MemberFencedError:
                with suppress(errors.BatchAbortedError, errors.MemberFencedError):
                    self._source.reopen()

    # -- giving way and going wrong -------------------------------------------------------

    def pause(self, seconds: float) -> None:
        """Let time pass; a process that ended meanwhile comes back in none of its threads."""
        self._world.pause(self, seconds)

    def freeze(self, seconds: float) -> None:
        """Stand still, heartbeats included, as after SIGSTOP."""
        self._frozen = True
        self.pause(seconds)
        self._frozen = False

    def struck(self, where: str, what: str) -> Strike | None:
        """Return the fault that strikes here; those that need no place are done at once."""
        world = self._world
        self._steps += 1
        strike = world.chance.strike(f"{self.name}#{self._steps}", where, world.scheduler.now_s)
        if strike is None:
            return None
        world.tell(f"{self.name} {what}: {strike.kind} ({strike.way:.2f}, {strike.seconds:.2f} s)")
        world.count(strike.kind)
        match strike.kind:
            case "silence":
                world.group.silent_until_s[self.name] = world.scheduler.now_s + strike.seconds
            case "double join":
                world.fence_causes += 1
                world.group.double_join(self.name)
            case "signal":
                self.lifecycle.stop("SIGTERM")
            case "freeze" if where != REQUESTS:
                self.freeze(strike.seconds)
            case "behind" | "crash" if where != REQUESTS:
                raise CrashError
            case "claims":
                self._strike_claims(strike)
            case "brokers" | "twin" | "spare" | "compacted" | "disk":
                world.strike(strike, self)
        return strike

    def _strike_claims(self, strike: Strike) -> None:
        world = self._world
        world.move_clock_of_claims()
        match strike.choice("mine", "all", "emptied"):
            case "mine":
                self._claims_away_until_s = world.scheduler.now_s + strike.seconds
            case "all":
                world.claims_away_until_s = world.scheduler.now_s + strike.seconds
            case _ if world.claims is not None:
                world.claims.empty()
                world.emptied += 1

    def claims_away(self) -> bool:
        """Whether the claim store gives this process no answer."""
        away_until_s = max(self._claims_away_until_s, self._world.claims_away_until_s)
        return self._world.scheduler.now_s < away_until_s

    def at_step(self, step: str) -> InjectedFault | None:
        """Before a step of source or transaction."""
        strike = self.struck(STEPS, step)
        if strike is None or strike.kind != "error":
            return None
        error: Any = strike.choice("aborted", "aborted", "dead", "fenced")
        if error == "fenced":
            self._world.fence_causes += 1
        return InjectedFault(error, after=strike.seconds > 0.5)

    def at_disk(self, step: str) -> None:
        """Before and after a step of the store, or of reading its changelog."""
        self.struck(APPLY if step == "apply" else KEPT, step)

    def work_and_keep(self, record: Record, state: State[Any]) -> Any:
        self._meet(record)
        return business.keep(record, state, filtered=self._world.options.filtered)

    def work(self, record: Record) -> Any:
        self._meet(record)
        return self.answer(record)

    def _meet(self, record: Record) -> None:
        strike = self.struck(BUSINESS, f"record {record.offset}")
        if strike is not None and strike.kind == "slow":
            self.pause(strike.seconds)
        if self._world.scheduler.now_s >= self._alarm_s:
            self.interrupt.due = True

    def answer(self, record: Record) -> Any:
        """Do what business code does, in no time."""
        until_s = business.asks_until_s(record.value or b"") if self._world.options.later else 0.0
        if self._world.scheduler.now_s < START_S + until_s:
            self._world.count("later tries")
            raise errors.RetryLater(after=1)
        return business.work(record)
