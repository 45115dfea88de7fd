"""What other groups have not read: the arithmetic, and the monitor that counts now and then."""

import random
from collections.abc import Mapping

import pytest

from hapax.cluster.lag import Counted, GroupProgress, ReaderLag, shares, stretch
from hapax.cluster.partition_offsets import LogOffsets
from hapax.engines.monitors import READER_OFFSETS_MAX, ReaderLagMonitor
from hapax.settings import load_settings
from tests.kit.turn import of_this_turn
from tests.kit.waiting import await_
from tests.unit.test_telemetry_events import Told

LOG = LogOffsets(10, 90, 100)


def counted(start: int, end: int, offsets: set[int]) -> Counted:
    one = Counted(start)
    for offset in sorted(offsets):
        one.add(offset)
    one.end = end
    return one


@pytest.mark.parametrize(
    ("offsets", "gap"),
    [
        ({5, 6, 7, 8, 9}, (10, 10)),
        (set(), (5, 10)),
        ({5, 6}, (7, 10)),
        ({8, 9}, (5, 8)),
        ({7}, (5, 10)),
        ({5, 9}, (6, 9)),
        ({5, 7, 9}, (6, 9)),
    ],
)
def test_the_gap_holds_all_offsets_without_a_record(offsets, gap):
    assert counted(5, 10, offsets).gap == gap


@pytest.mark.parametrize("seed", of_this_turn(20, 300))
def test_what_is_left_after_each_offset_is_what_was_counted_from_there(seed):
    chance = random.Random(seed)
    for _ in range(10):
        end = chance.randrange(30)
        offsets = {offset for offset in range(end) if chance.random() < 0.6}
        one = counted(0, end, offsets)
        for begin in sorted(chance.choices(range(35), k=4)):
            one.drop_before(begin)
            left = {offset for offset in offsets if offset >= begin}
            assert one.total == len(left)
            assert (one.start, one.end) == (begin, max(begin, end))
            first, last = one.gap
            assert all(first <= offset < last for offset in set(range(begin, one.end)) - left)


@pytest.mark.parametrize(
    ("committed", "begin", "undecided", "deleted"),
    [
        (50, 50, 10, 0),
        (90, 90, 10, 0),
        (95, 95, 5, 0),
        (100, 100, 0, 0),
        (4, 10, 10, 6),
        (None, 10, 10, 0),
        (101, 10, 10, 0),
    ],
)
def test_a_stretch_begins_at_the_offset_where_the_log_has_it(committed, begin, undecided, deleted):
    assert stretch(committed, LOG) == (begin, max(begin, 90))
    one = ReaderLag("t", 0, LOG, committed, records=3, uncounted=2)
    assert (one.undecided, one.deleted) == (undecided, deleted)
    assert (one.records_min, one.records_max) == (3 if committed not in {None, 101} else 0, 5)


def test_short_stretches_are_read_whole_and_long_ones_alike():
    lengths = {("t", 0): 100, ("t", 1): 7, ("t", 2): 1000, ("t", 3): 0}
    assert shares(lengths, 107) == {("t", 0): 50, ("t", 1): 7, ("t", 2): 50, ("t", 3): 0}
    assert shares(lengths, 10_000) == lengths
    assert shares({}, 5) == {}


FIRST, SECOND = ("in", 0), ("in", 1)
NAMES = ("reader_lag_records", "reader_lag_records_max", "reader_lag_open")


class Probe:
    """Answers one after the other; an exception is raised."""

    def __init__(self, *answers: list[ReaderLag] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []

    def look(self, offsets_max: int) -> list[ReaderLag]:
        self.asked.append(offsets_max)
        answer = self.answers.pop(0) if self.answers else []
        if isinstance(answer, Exception):
            raise answer
        return answer


def lag(partition: int, records: int, uncounted: int = 0) -> ReaderLag:
    return ReaderLag("out", partition, LogOffsets(0, 90, 94), 80, records, uncounted)


def monitor(
    told: Told, probes: Mapping[str, Probe], progress: GroupProgress, engine: str = "worker"
) -> ReaderLagMonitor:
    settings = load_settings(
        {
            "HAPAX_APP": "a",
            "HAPAX_ENGINE": engine,
            "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
            "HAPAX_INPUT__TOPICS": "in,more",
            "HAPAX_OUTPUT__TOPIC": "out",
            "HAPAX_TELEMETRY__LAG_INTERVAL": "1s",
        }
    )
    return ReaderLagMonitor(probes, lambda: progress, told.events, settings)


def values(told: Told, group: str, partition: int) -> list[float | None]:
    labels = {"group": group, "topic": "out", "partition": str(partition)}
    return [told.value(name, **labels) for name in NAMES]


def test_what_a_group_has_left_is_three_series_and_they_go_when_it_cannot_be_asked():
    told = Told()
    billing = Probe([lag(0, 5), lag(1, 3, 4)], [lag(1, 2)], TimeoutError("no answer"), [lag(0, 1)])
    look = monitor(told, {"billing": billing}, GroupProgress({FIRST: 3})).look
    look()
    assert [values(told, "billing", number) for number in (0, 1)] == [[5, 5, 4], [3, 7, 4]]
    look()
    assert [values(told, "billing", number) for number in (0, 1)] == [[None] * 3, [2, 2, 4]]
    look()
    assert values(told, "billing", 1) == [None] * 3
    assert told.lines[-1]["reason"] == "TimeoutError: no answer"
    look()
    assert values(told, "billing", 0) == [1, 1, 4]


def test_a_group_that_fails_leaves_the_series_of_others_which_go_with_the_partition():
    told, progress = Told(), GroupProgress({FIRST: 3})
    probes = {"billing": Probe(ValueError("unforeseen")), "search": Probe([lag(0, 5)])}
    look = monitor(told, probes, progress).look
    look()
    assert values(told, "search", 0) == [5, 5, 4]
    assert [probe.asked for probe in probes.values()] == [[READER_OFFSETS_MAX // 2]] * 2
    progress.committed = {}
    look()
    assert values(told, "search", 0) == [None] * 3


@pytest.mark.parametrize(
    ("engine", "ours", "counts"),
    [
        ("worker", {FIRST: 3, SECOND: 3}, True),
        ("worker", {SECOND: 3, ("more", 0): 3}, False),
        ("worker", {}, False),
        ("spark", {}, True),
    ],
)
def test_the_process_with_the_first_partition_counts(engine, ours, counts):
    probe = Probe([lag(0, 5)])
    monitor(Told(), {"billing": probe}, GroupProgress(ours), engine).look()
    assert bool(probe.asked) == counts


def test_the_thread_looks_until_it_is_stopped_and_ends_at_once_without_a_group():
    told, probe = Told(), Probe()
    thread = monitor(told, {"billing": probe}, GroupProgress({FIRST: 3}))
    thread.start()
    await_(lambda: len(probe.asked) > 1)
    thread.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert thread.daemon
    idle = monitor(told, {}, GroupProgress({FIRST: 3}))
    idle.start()
    idle.join(30)
    assert not idle.is_alive()
