"""One schedule: the real spool and the real drainer on a disk and brokers that fail, and a judge.

Records are numbered as they are handed over, so what is right is short: the numbers in Kafka grow
(in order, none twice), and each that was acknowledged is among them at the end. Opening must never
fail, unless a bit was flipped: then it may say so, and must not lose anything without a word.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

from hapax.core.errors import HapaxError, ProducerDeadError, StopError
from hapax.core.records import Message
from hapax.publish.drainer import Drainer
from hapax.publish.stored import stored
from hapax.spool import folder
from hapax.spool.group_commit import GroupCommit
from hapax.spool.spool import SpoolStore
from tests.simulation.spool.disk import ModelDisk

APP, TOPIC = "app", "topic"
OPENS_MAX, STEPS_MAX = 5, 14
TOLD = (folder.SpoolDamagedError, folder.SpoolDisagreesError)
SETTINGS: Any = SimpleNamespace(
    app=APP,
    transaction=SimpleNamespace(
        records_max=6, bytes_max=1 << 20, interval_ms=200, timeout_ms=10_000
    ),
)


class WrongError(AssertionError):
    """The judge has found something."""


class Later:
    """Keeps what is submitted until the schedule does it."""

    def __init__(self) -> None:
        self._submitted: list[Any] = []

    def submit(self, *call: Any) -> None:
        self._submitted.append(call)

    def taken(self) -> list[Any]:
        submitted, self._submitted = self._submitted, []
        return submitted


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
        self.values: dict[int, bytes] = {}
        self.failing = 0.0
        self.transaction = SimpleNamespace(refusal=lambda: None)
        self._chance = chance
        self._sent: list[int] = []

    def cluster_id(self) -> str:
        return "cluster"

    def opened(self) -> tuple[int, str] | None:
        return self.marker

    def send(self, chunks: Iterable[Sequence[Message]]) -> dict[str, int]:
        sent = [one.value or b"" for chunk in chunks for one in chunk]
        self._sent = [int(value.split(b" ")[0]) for value in sent]
        if any(
            self.values[number] != value for number, value in zip(self._sent, sent, strict=True)
        ):
            raise WrongError(f"not what was handed over: {sent}")
        return {}

    def commit(self, number: int, metadata: str) -> None:
        fate = self._chance.random()
        if fate < self.failing / 2:
            raise ProducerDeadError("it was not committed")
        self.numbers += self._sent
        self.marker = (number, metadata)
        if fate < self.failing:
            raise ProducerDeadError("it was committed, and nobody was told")

    def lacks(self, _topic: str) -> bool:
        return False

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
        self.spool: SpoolStore | None = None
        self.given = 0
        self.acknowledged: list[int] = []
        self.faults: dict[str, int] = {}

    def run(self) -> None:
        try:
            for _ in range(self.chance.randint(1, OPENS_MAX)):
                self._life()
            self.brokers.failing = 0.0
            spool, _commit, drainer = self._opened()
            while max(drainer.next, spool.first) < spool.next:
                self._drain(spool, drainer)
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
        except (folder.SpoolFailedError, folder.SpoolFullError) as error:
            if self.flipped and not (disk.dead or disk.failing or disk.full):
                raise folder.SpoolDamagedError("", str(error)) from error
            self._count(_fault(disk, error))
        lost = disk.dead or chance.random() < 0.5
        self.disk = disk.after_loss() if lost and chance.random() < 0.8 else disk.after_kill()
        if self.spool is not None:
            self.spool.close()  # has no effect any more
        if self.flips and not self.flipped and self.disk.shown and chance.random() < 0.5:
            self.flipped = self.disk.flip()

    def _work(self) -> None:
        chance = self.chance
        spool, commit, drainer = self._opened()
        for _ in range(chance.randint(1, STEPS_MAX)):
            step = chance.random()
            if step < 0.6:
                self._give(commit)
            if step > 0.4:
                self._drain(spool, drainer)
        if chance.random() < 0.3:
            spool.close()

    def _opened(self) -> tuple[SpoolStore, GroupCommit, Drainer]:
        disk: Any = self.disk
        disk_max_bytes = self.chance.choice([1 << 18, 1 << 22])
        self.spool = None
        spool = self.spool = SpoolStore(disk, APP, disk_max_bytes=disk_max_bytes)
        if not self.flipped and self.acknowledged and spool.next == 1:
            raise WrongError(f"lost: all of {self.acknowledged}")
        at = int(spool.meta.position or b"0")
        if not self.flipped and at < (self.acknowledged or [0])[-1]:
            raise WrongError(f"the position went back to {at}")
        commit = GroupCommit(
            spool, disk_max_bytes=disk_max_bytes, memory_max_records=100, full_timeout_s=0.0
        )
        self.later = commit._pool = Later()  # type: ignore[assignment]
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

            def accepted(_first: int, numbers: list[int] = numbers) -> None:
                self.acknowledged += numbers

            at = b"%d" % numbers[-1]
            try:
                commit.submit(records, accepted, position=at)
            except folder.SpoolFullError:
                self._count("spool full")
        self._accept(commit)

    def _message(self, number: int) -> Message:
        fill = self.chance.choice([b"", b"x" * 40, bytes(700), bytes(3) + b"y" * 1500])
        value = self.brokers.values[number] = b"%d " % number + fill
        return Message(TOPIC, value, None, -1, 0, [])

    def _accept(self, commit: GroupCommit) -> None:
        for accept, group in self.later.taken():
            accept(group)
            if isinstance(group.accepted.exception(), folder.SpoolFullError):
                self._count("disk full")
        if commit._failed is not None:
            raise commit._failed

    def _drain(self, spool: SpoolStore, drainer: Drainer) -> None:
        """Publish once, where there is anything; a drainer in doubt asks for the marker first."""
        before = len(self.brokers.numbers)
        if drainer.state == "starting" and not spool.read(spool.first, 1, 1):
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
        except folder.SpoolFullError:
            self._count("disk full")
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


def _fault(disk: ModelDisk, error: HapaxError) -> str:
    if disk.dead:
        return "power lost"
    return "disk full" if isinstance(error, folder.SpoolFullError) else "disk failed"


def play(seed: int, *, flips: bool) -> dict[str, int]:
    """Play a schedule; return what has struck. Raises WrongError with the seed."""
    schedule = Play(seed, flips=flips)
    try:
        schedule.run()
    except (WrongError, StopError, AssertionError, KeyError) as error:
        raise WrongError(f"seed {seed}, flips {flips}: {error}") from error
    return schedule.faults
