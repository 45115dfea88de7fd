"""Keyed state in the simulator: folders and what harms them, a changelog, threads, and a judge.

``KeyedState``, ``StateHold``, ``restore`` and what ``LmdbStore`` makes of positions are the real
ones. Pages of LMDB are dicts here: tests/contract/test_state_store.py holds those to the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from queue import Empty
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from hapax import state_store
from hapax.core.errors import PreflightError
from hapax.core.records import Coordinates, Progress, Record, TopicPartition
from hapax.core.results import Result
from hapax.engines import state_restore
from hapax.engines.lifecycle import Process as Shared
from hapax.engines.state_restore import Keyed, StateHold
from hapax.processing.keyed_state import KeyedState, MemoryState, changes_of
from hapax.processing.state import ChangelogPiece, StateFigures, due_ms, entry_of, prefix_of
from hapax.processing.transform import Transformer, TransformForm
from hapax.state_store import LmdbStore, StatePosition
from hapax.testing.broker import MemoryBroker
from tests.kit.doubles import CrashError
from tests.simulation.business import BYTES_MAX, DEAD, INPUTS, Effect, keep
from tests.simulation.chance import Strike

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

KEPT_TOPIC = "app-state"
IDS = ("cluster", "in", KEPT_TOPIC)
KEPT_S = 3.0
"""Tombstones are there for twice as long; nothing that is frozen is so for a third of that."""
PIECE = 3
TICK_S = 0.05

# -- What is on disks ----------------------------------------------------------------------


class Disk(msgspec.Struct):
    """A folder: what LMDB would have in it. ``older``: copies of it."""

    values: dict[bytes, bytes] = {}
    rows: dict[TopicPartition, StatePosition] = {}
    older: list[Disk] = []

    def copy(self) -> Disk:
        return Disk(dict(self.values), dict(self.rows))


class SimulatedStore(MemoryState, LmdbStore):
    """The real store on a ``Disk``; ``at_step`` is asked before and after each of its writes.

    values  those that the worker sees, with rows of the same moment in ``_reader``
    """

    position, source = LmdbStore.position, LmdbStore.source

    def __init__(self, disk: Disk, at_step: Callable[[str], object] = bool) -> None:
        self.of = IDS
        self.disk = disk
        self.watch: Callable[[TopicPartition, StatePosition, Disk], None] = lambda *_: None
        self._at_step = at_step
        self._next, self._swept = {}, {}
        self._reading = cast("Any", nullcontext())
        self.refresh()

    def apply(self, changes: Mapping[bytes, bytes | None], *progress: Progress) -> None:
        self._at_step("apply")
        LmdbStore.apply(self, changes, *progress)

    def refresh(self) -> None:
        self._reader = self.disk.copy()
        self.values = self._reader.values

    def row(self, where: TopicPartition) -> StatePosition | None:
        return self.disk.rows.get(where)

    def drop(self, where: TopicPartition) -> None:
        self._at_step("drop")
        self.disk.rows.pop(where, None)
        self._at_step("dropped row")
        head = where[1].to_bytes(4, "big")
        for entry in [at for at in self.disk.values if at.startswith(head)]:
            del self.disk.values[entry]

    def _row(self, reader: Any, where: TopicPartition) -> StatePosition | None:
        return cast("Disk", reader).rows.get(where)

    def figures(self, restoring: Mapping[TopicPartition, tuple[int, int | None]]) -> StateFigures:
        return StateFigures(0, 1, len(self.disk.values), restoring)

    def _write(
        self,
        changes: Mapping[bytes, bytes | None],
        rows: Mapping[TopicPartition, StatePosition],
        swept: Iterable[bytes] = (),
    ) -> None:
        self._at_step("write")
        self.disk.older = [*self.disk.older[-4:], self.disk.copy()]
        all_ = {**self.disk.values, **dict(changes)}
        self.disk.values = {at: one for at, one in all_.items() if one is not None}
        self.disk.rows.update(rows)
        for where, row in rows.items():
            self.watch(where, row, self.disk)
        self._at_step("written")


class Disks:
    """Those of all instances, by name, older copies of them, and who has one open."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._disks: dict[str, Disk] = {}
        self._users: dict[str, Process] = {}

    def of(self, process: Process) -> Disk:
        """Return the folder of an instance; a second process of it has one of its own."""
        name = process.instance.partition("-")[0]
        user = self._users.get(name)
        if user is not None and not user.left:
            return Disk()
        self._users[name] = process
        disk = self._disks.setdefault(name, Disk())
        for row in disk.rows.values():
            self._world.count("disk was there" if row.of == IDS else "disk of another cluster")
        return disk

    def reads_on(self, name: str, where: TopicPartition, at: int, broker: MemoryBroker) -> bool:
        """Whether a folder has exactly the state of there: nothing is changed twice then."""
        row = self._disks.get(name, Disk()).rows.get(where)
        first = next((one.offset for one in broker.fetch(where, at, 1)), at)
        return row is not None and row.input is not None and at <= row.input <= first

    def harm(self, strike: Strike, process: Process) -> None:
        """Harm the folder; a process that has it open does not see that: its files are open."""
        name = process.instance.partition("-")[0]
        disk, disks = self._disks.get(name, Disk()), self._disks
        form = strike.choice("lost", "torn", "older", "older", "older", "foreign", "another's")
        self._world.count(f"disk {form}")
        if form in {"lost", "torn"}:  # what is damaged is opened empty
            disks[name] = Disk()
        elif form == "older":
            disks[name] = (
                disk.older[int(strike.way * 97) % len(disk.older)] if disk.older else Disk()
            )
        elif form == "foreign":
            wrong = dict.fromkeys(disk.values, msgspec.msgpack.encode(10**6))
            of = ("another", *IDS[1:]) if strike.way % 0.1 < 0.05 else (IDS[0], "recreated", IDS[2])
            rows = {at: msgspec.structs.replace(row, of=of) for at, row in disk.rows.items()}
            disks[name] = Disk(wrong, rows)
        else:
            others = [each for other, each in disks.items() if other != name]
            disks[name] = others[0].copy() if others else Disk()


# -- The changelog -------------------------------------------------------------------------


class SimulatedChangelog:
    """Partitions of it as one process reads them, in small pieces."""

    kept_s = KEPT_S
    ids = staticmethod(lambda: IDS)

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def span(self, partition: int) -> tuple[int, int]:
        return self.spans([partition])[partition]

    def spans(self, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        self._ask("spans")
        logs = self._world.broker.logs
        return {number: (0, logs[(KEPT_TOPIC, number)].end) for number in partitions}

    def read(self, of: Any, *spans: Any) -> Iterator[Any]:
        if isinstance(of, tuple):
            yield from self._read(of, *spans)
            return
        for number, span in spans[0].items():
            for piece in self._read((of, number), *span):
                yield {number: piece}

    def _read(self, where: TopicPartition, start: int, end: int) -> Iterator[ChangelogPiece]:
        broker, at = self._world.broker, start
        log = broker.logs[(KEPT_TOPIC, where[1])]
        self._world.count("tails read" if start else "changelogs read")
        while at < end:
            self._ask("read")
            broker.expire()
            found = [one for one in log.fetch(at, PIECE) if one.offset < end]
            if not found and log.stable_end >= end:
                yield ChangelogPiece({}, end)
                return
            if not found:
                continue
            changes = {entry_of(where[1], one.key or b""): one.value for one in found}
            at, newest = found[-1].offset + 1, newest_of(found)
            yield ChangelogPiece(changes, at, newest.pop(where[0], -1), newest)

    def _ask(self, what: str) -> None:
        self._process.at_disk(what)
        self._world.pause(self._process, self._world.latency())
        if self._world.scheduler.now_s < self._world.brokers_away_until_s:
            raise PreflightError(["brokers are away"])


def newest_of(changes: Iterable[Record]) -> dict[str, int]:
    """Return by input the highest offset that changes name."""
    newest: dict[str, int] = {}
    for one in changes:
        for name, value in one.headers:
            if name == "hapax-source":
                source = Coordinates.parse((value or b"").decode())
                newest[source.topic] = max(source.offset, newest.get(source.topic, -1))
    return newest


def compact(broker: MemoryBroker, tombstones: dict[Coordinates, float], now_s: float) -> None:
    """Remove what later records stand for, and deletions that are old, as the log cleaner does."""
    for where, log in broker.logs.items():
        if where[0] == KEPT_TOPIC:
            there = log.fetch(0, log.end)
            last = {one.key: one.offset for one in there}
            for one in there:
                deleted_s = tombstones.get(one.coordinates, now_s)
                if last[one.key] != one.offset or now_s - deleted_s > 2 * KEPT_S:
                    log.remove(one.offset)


# -- Threads that give way as processes do -------------------------------------------------


class Threads:
    """Threads of processes. ``wait``: in one of them, which may be over afterwards."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._running: dict[greenlet, Process] = {}

    def wait(self, seconds: float) -> None:
        me = getcurrent()
        self.world.pause(self._running.get(me) or self.world.process_of(me), seconds)

    def start(self, run: Callable[[], None]) -> None:
        me = greenlet(run, self.world.scheduler.hub)
        self._running[me] = self.world.process_of(getcurrent())
        self.world.scheduler.at(self.world.scheduler.now_s, cast("Any", me))

    def ended(self) -> None:
        """Take note that a thread ended as a process does, with it."""
        process = self._running[getcurrent()]
        process.killed = process.killed or not process.left


class _Thread:
    def __init__(self, threads: Threads, *, target: Callable[[], None], **_named: Any) -> None:
        self._threads, self._target, self.alive = threads, target, True
        self.start = partial(threads.start, self._run)

    def _run(self) -> None:
        try:
            self._target()
        except CrashError:
            self._threads.ended()
        self.alive = False

    def is_alive(self) -> bool:
        return self.alive

    def join(self, timeout: float) -> None:
        until_s = self._threads.world.scheduler.now_s + timeout
        while self.alive and self._threads.world.scheduler.now_s < until_s:
            self._threads.wait(TICK_S)


class _Event:
    def __init__(self, threads: Threads) -> None:
        self.is_set: Callable[[], bool] = bool
        self.set = partial(setattr, self, "is_set", lambda: True)
        self.wait = threads.wait


class _Queue(deque[Any]):
    def __init__(self, threads: Threads) -> None:
        super().__init__()
        self._threads = threads

    def empty(self) -> bool:
        return not self

    put = deque.append

    def get(self, timeout: float = 0.0) -> Any:
        until_s = self._threads.world.scheduler.now_s + timeout
        while not self:
            if self._threads.world.scheduler.now_s >= until_s:
                raise Empty
            self._threads.wait(TICK_S)
        return self.popleft()


@contextmanager
def threads(world: World) -> Iterator[None]:
    """Let what state_restore.py starts be greenlets of the process that starts it, on one clock."""
    made = Threads(world)
    parts = SimpleNamespace(Thread=partial(_Thread, made), Event=partial(_Event, made))
    now_s = world.scheduler.monotonic
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_restore, "threading", parts)
        patch.setattr(state_restore, "SimpleQueue", partial(_Queue, made))
        for module in (state_restore, state_store):
            patch.setattr(module, "time", SimpleNamespace(time=now_s, monotonic=now_s))
        yield


# -- The assembly --------------------------------------------------------------------------


def _plain(form: TransformForm) -> TransformForm:
    return form


def form_of(process: Process) -> TransformForm:
    return TransformForm(process.work_and_keep, stateful=True)


def call_elsewhere(
    process: Process, state: KeyedState, records: Sequence[Record], retrying: Any
) -> list[Result]:
    """Call records in another process, as isolated_calls.py does."""
    given = MemoryState()
    inner = KeyedState(given, "", bytes_max=BYTES_MAX)
    function: Any = inner.bound(form_of(process), _plain).function
    transformer = Transformer(function, 1, retrying)
    given.values = {at: one for each in records for at, one in state.entries(each).items() if one}
    results = [transformer.apply(record) for record in records]
    return [
        state.take(record, result, changes_of(result))
        for record, result in zip(records, results, strict=True)
    ]


def assemble_state(world: World, process: Process, shared: Shared) -> Keyed:
    """Return what service/hapax/wiring/state.py does."""
    store = SimulatedStore(world.disks.of(process), process.at_disk)
    store.watch = world.kept.hold
    name = f"app-{process.instance}"

    def placed(producer: tuple[str, int], partition: int, end: int) -> None:
        if producer == (name, process.epoch):
            store.placed(partition, None, SimpleNamespace(offset=lambda: end - 1))

    world.placed.append(placed)
    state = KeyedState(
        store,
        KEPT_TOPIC,
        inputs=INPUTS[: world.options.inputs],
        bytes_max=BYTES_MAX,
        now_ms=lambda: int(world.scheduler.now_s * 1000),
    )
    changelog = SimulatedChangelog(world, process)
    return Keyed(state, StateHold(cast("Any", shared), state, store, changelog))


def function_of(process: Process, keyed: Keyed) -> Callable[[Record], Any]:
    return keyed.state.bound(form_of(process), _plain).function


# -- The judge: state, from the input alone -------------------------------------------------


class Plain:
    """State of one key as a dict: (value, when it expires, in ms) by name."""

    def __init__(self, kept: dict[str, tuple[int, int | None]], now_ms: int) -> None:
        self._kept, self._now_ms = kept, now_ms

    def get(self, name: str, default: int) -> int:
        value, due = self._kept.get(name, (default, None))
        return default if due is not None and due <= self._now_ms else value

    def set(self, name: str, value: int, ttl: float | None = None) -> None:
        self._kept[name] = (value, None if ttl is None else self._now_ms + round(ttl * 1000))

    def delete(self, name: str) -> None:
        self._kept.pop(name, None)


def encoded(value: int, due: int | None) -> bytes:
    head = b"" if due is None else b"\xc1" + due.to_bytes(8, "big")
    return head + msgspec.msgpack.encode(value)


class KeptJudge:
    """Counts again what is kept; compares outputs, the changelog, and stores where they are.

    reach  by partition, the last record that has changed something
    """

    def __init__(self, note: Callable[[str, str], None], broker: MemoryBroker) -> None:
        self.reach: Progress = {}
        self.filtered = False
        self.tombstones: dict[Coordinates, float] = {}
        self._note = note
        self._broker = broker
        self._counted: dict[tuple[int, bytes], dict[str, tuple[int, int | None]]] = {}
        self._changelog: dict[bytes, bytes] = {}
        self._then: dict[int, dict[tuple[int, ...], dict[bytes, bytes]]] = {}
        """By number of a partition, by what is committed of each input."""
        self._committed: Progress = {}
        self._newest_ms: dict[int, int] = {}

    def judge(
        self,
        passed: Sequence[Record],
        effects: Mapping[Coordinates, list[Effect]],
        written: Sequence[Record],
        offsets: Progress,
    ) -> None:
        """Judge one transaction: ``passed`` records, and what it has ``written`` to the changelog.

        ``effects``: with values as they were written.
        """
        for record in sorted(passed, key=lambda one: one.coordinates):  # as they were taken
            self._count(record, effects.get(record.coordinates))
        for record in written:
            self._read(record, offsets)
        self._committed |= offsets
        for number in {where[1] for where in offsets}:
            self._compare(number)

    def _count(self, record: Record, effects: list[Effect] | None) -> None:
        newest_ms = self._newest_ms.get(record.partition, 0)
        self._newest_ms[record.partition] = max(newest_ms, record.timestamp_ms)
        unseen = self.filtered and (record.value or b"").startswith(b"filter")
        if (effects is None and not unseen) or (effects and effects[0][0] == DEAD):
            return
        place, values = (record.partition, record.key or b""), [one[1] for one in effects or []]
        before, wanted = self._counted.get(place, {}), []
        # What newer records of another input made expire may be gone already, or be there still.
        swept = {name: one for name, one in before.items() if (one[1] or newest_ms + 1) > newest_ms}
        for kept in ({**before}, swept):
            state = cast("Any", Plain(kept, record.timestamp_ms))
            self._counted[place] = kept
            wanted = [one.value for one in keep(record, state, filtered=self.filtered) or []]
            if values == wanted:
                break
        else:
            self._note("state", f"{record.coordinates}: {values} with what is kept, not {wanted}")
        if kept != before:
            self.reach[(record.topic, record.partition)] = record.offset

    def _read(self, record: Record, offsets: Progress) -> None:
        source = Coordinates.parse((dict(record.headers)["hapax-source"] or b"").decode())
        where = (source.topic, source.partition)
        if source.partition != record.partition or source.offset >= offsets.get(where, -1):
            self._note("state", f"a change by {source} is in partition {record.partition}")
        entry = entry_of(record.partition, record.key or b"")
        if record.value is None:
            self._changelog.pop(entry, None)
        else:
            self._changelog[entry] = record.value

    def _places(self, number: int) -> list[TopicPartition]:
        return sorted(where for where in self._broker.inputs if where[1] == number)

    def _compare(self, number: int) -> None:
        head = number.to_bytes(4, "big")
        there = {at: one for at, one in self._changelog.items() if at.startswith(head)}
        at = tuple(self._committed.get(where, 0) for where in self._places(number))
        self._then.setdefault(number, {})[at] = there
        wanted = {
            prefix_of(partition, key) + name.encode(): encoded(*found)
            for (partition, key), kept in self._counted.items()
            for name, found in kept.items()
            if partition == number
        }
        for entry in wanted.keys() - there.keys():
            due = due_ms(wanted[entry])
            if due is not None and due <= self._newest_ms.get(number, 0):
                del wanted[entry]  # it was swept, as it may be
        if wanted != there:
            wrong = {
                entry: (wanted.get(entry), there.get(entry))
                for entry in wanted.keys() | there.keys()
                if wanted.get(entry) != there.get(entry)
            }
            self._note("state", f"partition {number} at {at}: not this but that is kept: {wrong}")

    def hold(self, where: TopicPartition, _row: StatePosition, disk: Disk) -> None:
        """Hold what a store has of a partition against the changelog of then."""
        places = self._places(where[1])
        rows = [disk.rows.get(place) for place in places]
        held = [row.input for row in rows if row and row.input is not None and row.of == IDS]
        if len(held) < len(places):
            return
        then = {tuple(0 for _ in places): dict[bytes, bytes](), **self._then.get(where[1], {})}
        known = [at for at in then if all(map(self._reaches, places, at, held))]
        if not known:
            self._note("store", f"{where}: a store is at {held}, the group at {[*then]}")
            return
        head = where[1].to_bytes(4, "big")
        if {at: one for at, one in disk.values.items() if at.startswith(head)} != then[known[-1]]:
            self._note("store", f"{where}: a store at {held} differs from the changelog")

    def _reaches(self, where: TopicPartition, at: int, held: int) -> bool:
        """Whether no record is between what was committed and what a store holds."""
        log = self._broker.logs[where]
        return not any(log.at(offset) for offset in range(min(at, held), max(at, held)))
