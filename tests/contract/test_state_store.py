"""The store of keyed state: the contract on LMDB and in memory, kills, boots, and restores."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from hapax import state_store
from hapax.core import errors
from hapax.core.offset_commit import CommittedMetadata
from hapax.core.record_path import Batch
from hapax.core.records import TopicPartition
from hapax.engines import state_restore
from hapax.engines.state_restore import GroupMovedBackError, RestoreRequest, StateHold, restore
from hapax.processing.keyed_state import KeyedState, MemoryState, StateStore
from hapax.processing.state import EXPIRES, ChangelogPiece, Spans, prefix_of
from hapax.state_store import LmdbStore, StatePosition
from tests.kit.commands import run_captured
from tests.kit.small_disk import fill, make_read_only, small_disk
from tests.kit.waiting import reaches
from tests.simulation.keyed import Disk, SimulatedStore

WHERE, SIZE = ("orders", 3), 64 << 20
IDS = ("cluster", "input", "changelog")
A, B, LONG = (prefix_of(3, key) + b"n" for key in (b"a", b"b", b"k" * 2000))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def lmdb(folder: Path) -> Iterator[LmdbStore]:
    store = LmdbStore(folder, SIZE, IDS)
    store.restore({}, {WHERE: StatePosition(IDS, 0, 0, -1, time.time())})
    yield store
    store.close()


@pytest.fixture(params=["lmdb", "simulated", "memory"])
def store(request: pytest.FixtureRequest) -> StateStore:
    if request.param == "simulated":
        simulated = SimulatedStore(Disk({}, {WHERE: StatePosition(IDS, 0, 0, -1, time.time())}))
        simulated.of = IDS
        return simulated
    if request.param == "lmdb":
        found: LmdbStore = request.getfixturevalue("lmdb")
        return found
    memory = MemoryState()
    memory.progress[WHERE] = 0
    return memory


# -- the contract -------------------------------------------------------------------------


def test_what_was_applied_is_found_and_what_was_deleted_is_not(store):
    store.apply({A: b"1", B: b"2", LONG: b"3"}, {WHERE: 7}, {})
    store.apply({A: None, B: b"4"}, {WHERE: 9}, {})
    assert [store.get(entry) for entry in (A, B, LONG)] == [None, b"4", b"3"]
    assert store.position(WHERE) == 9


def test_a_key_has_its_entries_and_those_of_no_other(store):
    more = prefix_of(3, b"a") + b"m"
    other = prefix_of(4, b"a") + b"n"
    store.apply({A: b"1", more: b"2", B: b"3", LONG: b"4", other: b"5"}, {WHERE: 1}, {})
    assert store.entries(prefix_of(3, b"a")) == {A: b"1", more: b"2"}
    assert store.entries(prefix_of(3, b"k" * 2000)) == {LONG: b"4"}
    assert store.entries(prefix_of(3, b"none")) == {}


def test_a_partition_of_which_nothing_is_known_has_no_position(store):
    assert store.position(("orders", 4)) is None


def expiring(due_ms: int) -> bytes:
    return EXPIRES + due_ms.to_bytes(8, "big") + b"1"


def test_what_expires_is_due_in_its_order_once_and_not_where_it_was_changed_since(store):
    store.apply({A: expiring(20), B: expiring(10), LONG: expiring(30)}, {WHERE: 1}, {})
    assert store.due(3, 9, 10) == []
    assert store.due(3, 30, 10) == [B, A, LONG]
    assert store.due(3, 30, 1) == [B]
    assert store.due(4, 30, 10) == []
    store.apply({A: expiring(40), B: b"2"}, {WHERE: 2}, {})
    assert store.due(3, 39, 10) == [LONG]
    store.apply({LONG: None}, {WHERE: 3}, {})
    assert store.due(3, 39, 10) == []
    assert store.due(3, 40, 10) == [A]


# -- on a disk ----------------------------------------------------------------------------


def test_a_second_process_is_refused_while_the_first_has_the_folder(lmdb, folder):
    script = (
        "import sys; from pathlib import Path; from hapax.state_store import LmdbStore;"
        "LmdbStore(Path(sys.argv[1]), 1 << 20, ())"
    )
    done = run_captured([sys.executable, "-c", script, str(folder)])
    assert "another process uses this folder" in done.stderr


WRITER = """
import sys, time
from pathlib import Path
from hapax.state_store import LmdbStore, StatePosition
of, where = ("cluster", "input", "changelog"), ("orders", 3)
store = LmdbStore(Path(sys.argv[1]), 64 << 20, of)
store.restore({}, {where: StatePosition(of, 0, 0, -1, time.time())})
at = 0
while True:
    at += 1
    store.apply({b"%08d" % number: b"%d" % at for number in range(100)}, {where: at}, {})
    if at == 20:
        print("ready", flush=True)
"""


def test_a_kill_at_any_moment_leaves_all_of_a_transaction_or_nothing(folder):
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", WRITER, folder], stdout=-1) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            os.kill(writer.pid, signal.SIGKILL)
        store = LmdbStore(folder, SIZE, IDS)
        at = store.position(WHERE)
        assert at is not None
        assert at >= 20
        assert {store.get(b"%08d" % number) for number in range(100)} == {b"%d" % at}
        store.close()


@pytest.mark.parametrize(("closed", "kept"), [(True, b"1"), (False, None)])
def test_after_another_boot_only_a_store_that_was_closed_is_taken(
    folder, monkeypatch, closed, kept
):
    store = LmdbStore(folder, SIZE, IDS)
    store.restore({A: b"1"}, {WHERE: StatePosition(IDS, 5, 5, 4, time.time())})
    if closed:
        store.close()
    else:
        store._reader.abort()
        store._environment.close()
        store._lock.close()
    monkeypatch.setattr(state_store, "_boot", lambda: b"another")
    again = LmdbStore(folder, SIZE, IDS)
    assert again.get(A) == kept
    again.close()


def test_a_damaged_store_is_read_from_the_changelog_again(folder):
    LmdbStore(folder, SIZE, IDS).close()
    (folder / "lmdb" / "data.mdb").write_bytes(b"no database" * 1000)
    store = LmdbStore(folder, SIZE, IDS)
    assert store.position(WHERE) is None
    store.close()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(errors.PreflightError, match="HAPAX_STATE__DIR"):
        LmdbStore(tmp_path / "file" / "state", SIZE, IDS)


@pytest.fixture
def kept(folder: Path) -> Path:
    """A store that was closed, with many pages; return its file."""
    store = LmdbStore(folder, SIZE, IDS)
    many = {prefix_of(3, b"%d" % at) + b"n": b"v" * 100 for at in range(5_000)}
    store.restore(many, {WHERE: StatePosition(IDS, 5, 5, 4, time.time())})
    store.close()
    return folder / "lmdb" / "data.mdb"


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_store_that_was_cut_is_read_from_the_changelog_again(folder, kept, share):
    os.truncate(kept, int(kept.stat().st_size * share))
    store = LmdbStore(folder, SIZE, IDS)
    assert store.position(WHERE) is None
    store.close()


def test_a_damaged_page_stops_the_process_and_the_next_start_reads_the_changelog(folder, kept):
    pages = kept.read_bytes()
    whole = [pages[at : at + 4096] for at in range(0, len(pages), 4096)]
    junk = [b"\xa5" * 4096 if page.count(b"v" * 100) > 9 else page for page in whole]
    kept.write_bytes(b"".join(junk))
    store = LmdbStore(folder, SIZE, IDS)
    with pytest.raises(errors.StateTypeError, match="is damaged"):
        store.get(prefix_of(3, b"1") + b"n")
    with pytest.raises(errors.StopError, match="nothing is lost"):
        store.entries(prefix_of(3, b"1"))
    store.close()
    store = LmdbStore(folder, SIZE, IDS)
    assert store.position(WHERE) is None
    store.close()


def test_a_disk_that_is_full_or_read_only_is_said_and_what_was_there_stays(tmp_path):
    with small_disk(tmp_path / "small", 4 << 20) as disk:
        store = LmdbStore(disk / "state", SIZE, IDS)
        store.restore({A: b"1"}, {WHERE: StatePosition(IDS, 5, 5, 4, time.time())})
        store.refresh()
        ballast = fill(disk)
        with pytest.raises(errors.StopError, match="No space left on device; nothing is lost"):
            store.apply({b"%08d" % at: bytes(1000) for at in range(2000)}, {WHERE: 6}, {})
        assert (store.get(A), store.position(WHERE)) == (b"1", 5)
        store.close()
        for name in ("state", "new"):
            with pytest.raises(errors.PreflightError, match="No space left on device"):
                LmdbStore(disk / name, SIZE, IDS)
        ballast.unlink()
        store = LmdbStore(disk / "state", SIZE, IDS)
        assert (store.get(A), store.position(WHERE)) == (b"1", 5)
        store.close()
        make_read_only(disk)
        for name in ("state", "new"):
            with pytest.raises(errors.PreflightError, match="Read-only file system"):
                LmdbStore(disk / name, SIZE, IDS)


def test_a_state_larger_than_its_limit_stops_the_process_and_says_which_setting(folder):
    store = LmdbStore(folder, 1 << 20, IDS)
    store.restore({}, {WHERE: StatePosition(IDS, 0, 0, -1, time.time())})
    store.refresh()
    with pytest.raises(errors.StopError, match="HAPAX_STATE__SIZE_MAX"):
        store.apply({b"%08d" % at: bytes(1000) for at in range(2000)}, {WHERE: 1}, {})
    assert store.position(WHERE) == 0
    store.close()


# -- restores -----------------------------------------------------------------------------


class Log:
    """A changelog, the same in each partition: (source, changes) by offset; ``begin``: of it."""

    def __init__(self, *changes: tuple[int, dict[bytes, bytes | None]]) -> None:
        self.changes = list(changes)
        self.begin = 0
        self.kept_s, self.of = 43_200.0, IDS
        self.read_from: list[int] = []
        self.silent: set[int] = set()
        self.others: dict[str, int] = {}

    def ids(self) -> tuple[str, ...]:
        return self.of

    def spans(self, partitions: Collection[int]) -> dict[int, tuple[int, int]]:
        span = self.begin, len(self.changes)
        return {number: span for number in partitions if number not in self.silent}

    def read(self, topic: str, spans: Spans) -> Iterator[dict[int, ChangelogPiece]]:
        starts = [start for start, _end in spans.values()]
        self.read_from += starts
        for at in range(min(starts), len(self.changes)):
            source, changes = self.changes[at]
            begun = {number for number, (start, end) in spans.items() if start <= at < end}
            yield {number: ChangelogPiece(changes, at + 1, source, self.others) for number in begun}


def brought(lmdb: LmdbStore, log: Log, at: int) -> Any:
    """Return how many changes were read of the one partition, or raise why it has not come."""
    ((_wanted, came),) = restore(lmdb, log, [RestoreRequest(WHERE, at)])
    if isinstance(came, Exception):
        raise came
    return came


@pytest.fixture
def log() -> Log:
    return Log((0, {A: b"1"}), (1, {B: b"1"}), (2, {A: None}), (3, {B: b"2"}))


def test_an_empty_store_takes_all_of_the_changelog(lmdb, log):
    lmdb.drop(WHERE)
    assert brought(lmdb, log, 4) == 4
    lmdb.refresh()
    assert (lmdb.get(A), lmdb.get(B), lmdb.position(WHERE)) == (None, b"2", 4)


def test_a_store_that_is_behind_takes_the_tail_alone(lmdb, log):
    lmdb.restore({A: b"1", B: b"1"}, {WHERE: StatePosition(IDS, 2, 2, 1, time.time())})
    assert brought(lmdb, log, 4) == 2
    assert log.read_from == [2]
    lmdb.refresh()
    assert (lmdb.get(A), lmdb.get(B)) == (None, b"2")


@pytest.mark.parametrize(
    "row",
    [
        StatePosition(("other", "input", "changelog"), 2, 2, 1, time.time()),
        StatePosition(("cluster", "recreated", "changelog"), 2, 2, 1, time.time()),
        StatePosition(("cluster", "input", "recreated"), 2, 2, 4, time.time()),
        StatePosition(IDS, 2, 2, 1, time.time() - 43_200.0),
        StatePosition(IDS, 9, 4, 4, time.time()),
        StatePosition(IDS, 9, 5, 4, time.time()),
    ],
    ids=["cluster", "input", "changelog", "old", "ahead", "ahead of both logs"],
)
def test_a_store_of_something_else_is_dropped_and_read_from_the_start(lmdb, log, row):
    stale = prefix_of(3, b"stale") + b"n"
    lmdb.restore({stale: b"1"}, {WHERE: row})
    brought(lmdb, log, 4)
    lmdb.refresh()
    assert (lmdb.get(stale), lmdb.get(B), lmdb.position(WHERE)) == (None, b"2", 4)
    assert log.read_from == [0]


@pytest.mark.parametrize(
    ("of", "end"), [(("cluster", "input", "recreated"), 2), (IDS, 5)], ids=["recreated", "cut"]
)
def test_a_changelog_that_has_lost_changes_is_not_taken_for_all_that_was_kept(lmdb, log, of, end):
    row = StatePosition(of, 2, end, 1, time.time())
    lmdb.restore({A: b"1"}, {WHERE: row})
    with pytest.raises(errors.PositionLostError, match="deleted and recreated, or has lost its"):
        brought(lmdb, log, 4)
    assert lmdb.row(WHERE) == row


def test_a_tail_that_was_deleted_from_the_changelog_is_not_skipped(lmdb, log):
    lmdb.restore({A: b"1"}, {WHERE: StatePosition(IDS, 1, 1, 0, time.time())})
    log.begin = 3
    brought(lmdb, log, 4)
    lmdb.refresh()
    assert (lmdb.get(A), lmdb.get(B)) == (None, b"2")


@pytest.mark.parametrize("at", [0, 3])
def test_a_group_that_was_moved_back_stops_the_process_and_keeps_no_state_of_later_records(
    lmdb, log, at
):
    with pytest.raises(errors.PositionLostError, match=f"the group is at {at}"):
        brought(lmdb, log, at)
    assert lmdb.position(WHERE) is None


def test_partitions_are_read_together_and_one_that_was_moved_back_keeps_no_other_from_its_state(
    lmdb, log, monkeypatch
):
    monkeypatch.setattr(state_restore, "AT_ONCE", 9)
    places = {3: 4, 4: 3, 5: 4, 6: 4}
    lmdb.drop(WHERE)
    lmdb.restore({}, {("orders", 6): StatePosition(IDS, 4, 4, 3, time.time())})
    heard: dict[int, tuple[int, int]] = {}
    came = {
        wanted.where[1]: type(one) if isinstance(one, Exception) else one
        for wanted, one in restore(
            lmdb,
            log,
            [RestoreRequest(("orders", number), at) for number, at in places.items()],
            tell=lambda where, read, of: heard.update({where[1]: (read, of)}),
        )
    }
    assert came == {3: 4, 4: GroupMovedBackError, 5: 4, 6: 0}
    assert next(iter(came)) == 6
    assert heard == {3: (4, 4), 4: (4, 4), 5: (4, 4), 6: (0, 0)}
    assert [lmdb.row(("orders", number)).input for number in places] == [4, None, 4, 4]


# -- partitions wait for theirs, and only for what they still want ----------------------------


class Group(SimpleNamespace):
    """A source of which partitions are held, and where the group is."""

    def __init__(self, **committed: int) -> None:
        super().__init__(
            held=set(),
            changelog_id=None,
            at={("orders", int(n[1:])): o for n, o in committed.items()},
        )

    def assignment(self) -> set[TopicPartition]:
        return set(self.at)

    def processed(self) -> dict[TopicPartition, int]:
        return {}

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        return {where: self.at.get(where) for where in partitions}

    def beside(self, _where: TopicPartition) -> CommittedMetadata:
        return CommittedMetadata(changelog_id=self.changelog_id)

    def hold(self, where: TopicPartition, why: str, *, held: bool) -> None:
        (self.held.add if held else self.held.discard)(where)


def holding(lmdb: LmdbStore, log: Log, *inputs: str) -> tuple[StateHold, KeyedState]:
    names = ("state_awaited", "state_restored", "state_unread", "state_measured")
    said: Any = SimpleNamespace(**dict.fromkeys(names, lambda *_: None))
    process: Any = SimpleNamespace(events=said, clock=time)
    lmdb.drop(WHERE)
    lmdb.refresh()
    state = KeyedState(lmdb, "app-state", inputs=inputs)
    return StateHold(process, state, lmdb, log), state


@pytest.fixture
def waiting(lmdb: LmdbStore, log: Log) -> Iterator[StateHold]:
    hold, _state = holding(lmdb, log)
    yield hold
    assert hold.close()


@pytest.fixture
def gate(lmdb: LmdbStore, monkeypatch: pytest.MonkeyPatch) -> Event:
    """No restore begins before it is set."""
    event, row = Event(), lmdb.row
    monkeypatch.setattr(lmdb, "row", lambda where: row(where) if event.wait(10) else None)
    return event


def settled(hold: StateHold, group: Any) -> bool:
    hold.attend(group)
    return not hold._waiting


def test_a_partition_is_held_from_its_assignment_until_its_state_has_come(waiting, lmdb, gate):
    group = Group(p3=4)
    waiting.forget([WHERE])
    waiting.attend(group)
    assert group.held == {WHERE}
    gate.set()
    assert reaches(lambda: settled(waiting, group), 10)
    assert (group.held, lmdb.position(WHERE), lmdb.get(B)) == (set(), 4, b"2")


def test_a_partition_is_not_worked_on_while_another_member_has_what_shares_its_state(lmdb, log):
    hold, state = holding(lmdb, log, "orders", "tiers")
    group: Any = Group(p3=4)
    tiers, batch = ("tiers", 3), Batch([], {WHERE: 4}, {})
    hold.forget([WHERE])
    for _turn in range(2):
        hold.attend(group)
        assert group.held == {WHERE}
        with pytest.raises(errors.StateUnreadError):
            state.begin(batch, dict)
        group.at[tiers] = 2
        assert reaches(lambda: settled(hold, group) and not group.held, 10)
        assert (lmdb.position(WHERE), lmdb.position(tiers)) == (4, 2)
        state.begin(batch, dict)
        del group.at[tiers]
        hold.forget([tiers])
    assert hold.close()


def test_a_group_that_was_moved_back_in_one_of_its_inputs_is_refused(lmdb, log):
    wanted = RestoreRequest(WHERE, 4, siblings=((("tiers", 3), 5),))
    ((_wanted, came),) = restore(lmdb, log, [wanted])
    assert came == len(log.changes)
    log.changes.append((3, {A: b"9"}))
    log.others = {"tiers": 5}
    ((_wanted, came),) = restore(lmdb, log, [wanted])
    assert "tiers/3: the group is at 5, and the state has changes of record 5" in str(came)
    assert (lmdb.position(WHERE), lmdb.position(("tiers", 3))) == (None, None)


def test_what_has_left_meanwhile_stops_nothing_and_is_not_judged(waiting, log):
    waiting.add(errors.StateUnreadError({WHERE: 2}))
    waiting.forget([WHERE])
    assert reaches(lambda: settled(waiting, Group()), 10)


def test_a_group_that_has_come_further_meanwhile_is_followed(waiting, lmdb):
    group = Group(p3=4)
    waiting.add(errors.StateUnreadError({WHERE: 2}))
    assert reaches(lambda: settled(waiting, group), 10)
    assert lmdb.position(WHERE) == 4


def test_a_changelog_that_is_recreated_while_a_process_runs_stops_it(lmdb, log, monkeypatch):
    monkeypatch.setattr(state_restore, "LOOK_S", -1.0)
    hold, _state = holding(lmdb, log)
    log.of = ("cluster", "input", "recreated")
    hold.forget([WHERE])
    with pytest.raises(errors.StopError, match="deleted and recreated"):
        reaches(lambda: settled(hold, Group(p3=4)) and False, 10)
    assert hold.close()


def test_a_changelog_that_was_recreated_is_known_without_a_folder(waiting):
    group = Group(p3=4)
    for group.changelog_id in ("None", IDS[-1], "recreated"):
        waiting.forget([WHERE])
        if group.changelog_id != "recreated":
            assert reaches(lambda: settled(waiting, group), 10)
    with pytest.raises(errors.PositionLostError, match="was deleted and recreated"):
        settled(waiting, group)


def test_a_group_that_was_moved_back_stops_the_process(waiting):
    group = Group(p3=2)
    waiting.add(errors.StateUnreadError({WHERE: 2}))
    with pytest.raises(errors.PositionLostError, match="moved back"):
        reaches(lambda: settled(waiting, group), 10)


def test_a_partition_that_cannot_be_read_now_lets_the_others_pass(waiting, log, monkeypatch):
    monkeypatch.setattr(state_restore, "AGAIN_S", 0.05)
    ill, group = ("orders", 4), Group(p3=4)
    log.silent = {4}
    waiting.add(errors.StateUnreadError({ill: 4, WHERE: 4}))
    assert reaches(lambda: waiting.attend(group) or WHERE not in waiting._waiting, 10)
    assert ill in waiting._waiting
    log.silent = set()
    assert reaches(lambda: settled(waiting, group), 10)


def test_other_partitions_keep_what_they_have_when_one_is_dropped(lmdb, log):
    other, entry = ("orders", 4), prefix_of(4, b"a") + b"n"
    lmdb.restore({entry: b"9"}, {other: StatePosition(IDS, 1, 1, 0, time.time())})
    lmdb.drop(WHERE)
    lmdb.refresh()
    assert (lmdb.get(entry), lmdb.position(other)) == (b"9", 1)


def test_a_group_that_was_moved_back_to_where_a_store_is_continues_from_there(waiting, lmdb):
    lmdb.restore({A: b"1", B: b"1"}, {WHERE: StatePosition(IDS, 2, 2, 1, time.time())})
    lmdb.refresh()
    waiting.forget([WHERE])
    assert settled(waiting, Group(p3=2))


def test_a_partition_whose_state_came_as_it_was_assigned_again_is_not_held(waiting, lmdb, gate):
    group = Group(p3=4)
    waiting.forget([WHERE])
    waiting.attend(group)
    gate.set()
    assert reaches(lambda: (lmdb.refresh(), lmdb.position(WHERE) == 4)[1], 10)
    waiting.forget([WHERE])
    assert reaches(lambda: settled(waiting, group), 10)
    assert group.held == set()


def test_a_group_whose_offset_is_not_stable_is_asked_again(waiting, monkeypatch):
    group, failures = (
        Group(p3=4),
        [errors.BatchAbortedError("UNSTABLE_OFFSET_COMMIT", resolved=False)],
    )
    committed = group.committed

    def unstable(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        if failures:
            raise failures.pop()
        return committed(partitions)

    monkeypatch.setattr(group, "committed", unstable)
    waiting.add(errors.StateUnreadError({WHERE: 2}))
    with pytest.raises(errors.BatchAbortedError):
        reaches(lambda: settled(waiting, group), 10)
    assert reaches(lambda: settled(waiting, group), 3)
