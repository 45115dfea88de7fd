"""One schedule: the real spool and the real drainer on a disk and brokers that fail, and a judge.

Records are numbered as they are handed over, so what is right is short: the numbers in Kafka grow
(in order, none twice), and each that was acknowledged is among them at the end. Opening must never
fail, unless a bit was flipped: then it may say so, and must not lose anything without a word.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from hapax.core.errors import HapaxError, ProducerDeadError, StopError
from hapax.core.ports import Message
from hapax.publish.drainer import Drainer
from hapax.publish.stored import stored
from hapax.spool.errors import (
    SpoolDamagedError,
    SpoolDisagreesError,
    SpoolFailedError,
    SpoolFullError,
)
from hapax.spool.group_commit import Group, GroupCommit
from hapax.spool.spool import OpenSpool, SpoolPlace
from tests.simulation.spool.disk import ModelDisk, PowerLossError

APP, TOPIC = "app", "topic"
OPENS_MAX, STEPS_MAX = 5, 14
TOLD = (SpoolDamagedError, SpoolDisagreesError)
SETTINGS: Any = SimpleNamespace(
    app=APP, transaction=SimpleNamespace(records_max=6, bytes_max=1 << 20)
)


class WrongError(AssertionError):
    """The judge has found something."""


class AtOnce(Executor):
    """Does what is submitted before it returns: a schedule has one thread."""

    def submit(self, call: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        """Call; return what came of it."""
        done: Future[Any] = Future()
        try:
            done.set_result(call(*arguments, **named))
        except Exception as error:  # noqa: BLE001 - as executors do
            done.set_exception(error)
        return done


class Brokers:
    """Records and the marker, together or not at all; the answer may be lost."""

    def __init__(self, chance: Random) -> None:
        self.numbers: list[int] = []
        self.marker: tuple[int, str] | None = None
        self.failing = 0.0
        self.transaction = SimpleNamespace(refusal=lambda: None)
        self._chance = chance
        self._sent: list[int] = []

    def cluster_id(self) -> str:
        return "cluster"

    def opened(self) -> tuple[int, str] | None:
        return self.marker

    def send(self, chunks: Iterable[Sequence[Message]]) -> dict[str, int]:
        self._sent = [int((one.value or b"").split(b" ")[0]) for chunk in chunks for one in chunk]
        return {}

    def commit(self, number: int, metadata: str) -> None:
        fate = self._chance.random()
        if fate < self.failing / 2:
            raise ProducerDeadError("it was not committed")
        self.numbers += self._sent
        self.marker = (number, metadata)
        if fate < self.failing:
            raise ProducerDeadError("it was committed, and nobody was told")

    def close(self) -> None:
        return


class Play:
    """One schedule from its seed. ``faults`` counts what has struck, by name."""

    def __init__(self, seed: int, *, flips: bool) -> None:
        self.chance = Random(seed)
        self.disk = ModelDisk(self.chance)
        self.brokers = Brokers(self.chance)
        self.flips = flips
        self.flipped = ""
        self.given = 0
        self.acknowledged: list[int] = []
        self.faults: dict[str, int] = {}

    def run(self) -> None:
        """Play it. Raises WrongError."""
        try:
            for _ in range(self.chance.randint(1, OPENS_MAX)):
                self._life()
            self.disk.fuse, self.disk.full, self.disk.failing = -1, 0.0, 0.0
            self.brokers.failing = 0.0
            self._drain_all()
        except TOLD as error:
            if not self.flipped:
                raise WrongError(f"a sound spool was refused: {error}") from error
            self._count("told")
            return
        missing = sorted(set(self.acknowledged) - set(self.brokers.numbers))
        if missing:
            raise WrongError(f"lost: {missing} {self.flipped}")

    def _count(self, fault: str) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def _life(self) -> None:
        """Let a process live from its start to whatever ends it."""
        chance, disk = self.chance, self.disk
        disk.fuse = chance.randint(1, 60) if chance.random() < 0.7 else -1
        disk.full = 0.1 if chance.random() < 0.15 else 0.0
        disk.failing = 0.05 if chance.random() < 0.15 else 0.0
        self.brokers.failing = chance.choice([0.0, 0.0, 0.4])
        try:
            self._work()
        except PowerLossError:
            self._count("power lost")
            self.disk = disk.after_loss() if chance.random() < 0.8 else disk.after_kill()
        except (SpoolFailedError, OSError):
            self._count("disk failed")
            self.disk = disk.after_kill()
        else:
            self.disk = disk.after_kill() if chance.random() < 0.5 else disk.after_loss()
        if self.flips and not self.flipped and self.disk.shown and chance.random() < 0.5:
            self.flipped = self.disk.flip()

    def _work(self) -> None:
        chance = self.chance
        spool, commit, drainer = self._opened()
        sync = spool.log.sync

        def synced() -> None:
            """The drainer is another thread: it may come between a write and its sync."""
            if chance.random() < 0.2:
                self._drain(spool, drainer)
            sync()

        spool.log.sync = synced  # type: ignore[method-assign]
        for _ in range(chance.randint(1, STEPS_MAX)):
            step = chance.random()
            if step < 0.6:
                self._give(commit)
            if step > 0.4:
                self._drain(spool, drainer)
        if chance.random() < 0.5:
            self._round(commit, None)

    def _opened(self) -> tuple[OpenSpool, GroupCommit, Drainer]:
        place = SpoolPlace(Path("spool"), 1)
        spool = OpenSpool(
            self.disk, place, APP, segment_bytes=self.chance.choice([1100, 3000, 9000])
        )
        if not self.flipped and self.acknowledged and spool.log.next == 1:
            raise WrongError(f"lost: all of {self.acknowledged}")
        at = int(spool.log.position or b"0")
        if not self.flipped and at < (self.acknowledged or [0])[-1]:
            raise WrongError(f"the position went back to {at}")
        commit = GroupCommit(
            spool.log, disk_max_bytes=1 << 22, memory_max_records=100, full_timeout_s=0.0
        )
        drainer = Drainer(spool, SETTINGS, id_header="id", linger_s=0, drained=lambda: None)
        drainer._marked = self.brokers  # type: ignore[assignment]
        drainer._ahead._pool = AtOnce()  # type: ignore[assignment]
        return spool, commit, drainer

    def _give(self, commit: GroupCommit) -> None:
        """Hand over some calls, and let the disk work once."""
        for _ in range(self.chance.randint(1, 3)):
            numbers = [self.given + 1 + each for each in range(self.chance.randint(1, 3))]
            self.given = numbers[-1]
            records = [stored(self._message(number), 1) for number in numbers]

            def accepted(group: Group, _index: int, numbers: list[int] = numbers) -> None:
                if group.error is None:
                    self.acknowledged += numbers
                elif isinstance(group.error, SpoolFullError):
                    self._count("disk full")

            commit.submit(records, b"%d" % numbers[-1], accepted)
        self._round(commit, commit._next())

    def _message(self, number: int) -> Message:
        fill = self.chance.choice([b"", b"x" * 40, bytes(700), bytes(3) + b"y" * 1500])
        return Message(TOPIC, b"%d " % number + fill, None, -1, 0, [])

    def _round(self, commit: GroupCommit, group: Group | None) -> None:
        try:
            commit._round(group)
        except HapaxError as error:
            commit._give_up(error)
            raise

    def _drain(self, spool: OpenSpool, drainer: Drainer) -> None:
        """Publish once, where there is anything; a drainer in doubt asks for the marker first."""
        before = len(self.brokers.numbers)
        if drainer.state == "starting" and not spool.log.read(spool.log.first, 1, 1).records:
            return
        try:
            if drainer.state != "publishing":
                drainer._go_on(self.brokers)  # type: ignore[arg-type]
                drainer.state = "publishing"
            taken = drainer._ahead.take(drainer.next)
            if taken.size:
                drainer._publish(taken)
        except ProducerDeadError:
            self._count("answer lost")
            drainer.state = "waiting"
        finally:
            self._judge(before)

    def _judge(self, before: int) -> None:
        numbers = self.brokers.numbers[max(0, before - 1) :]
        if any(late <= early for early, late in pairwise(numbers)):
            raise WrongError(f"doubled or out of order: {self.brokers.numbers}")
        between = set(range(numbers[0], numbers[-1])) if numbers else set()
        missing = sorted(between.intersection(self.acknowledged[-200:]) - set(numbers))
        if missing:
            raise WrongError(f"passed over: {missing} {self.flipped}")

    def _drain_all(self) -> None:
        spool, _commit, drainer = self._opened()
        while max(drainer.next, spool.log.first) < spool.log.certified_next:
            self._drain(spool, drainer)


def play(seed: int, *, flips: bool) -> dict[str, int]:
    """Play a schedule; return what has struck. Raises WrongError with the seed."""
    schedule = Play(seed, flips=flips)
    try:
        schedule.run()
    except (WrongError, StopError, AssertionError, KeyError) as error:
        raise WrongError(f"seed {seed}, flips {flips}: {error}") from error
    return schedule.faults
