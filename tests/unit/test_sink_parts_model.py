"""Drivers of one query that are killed, frozen and overtaken at any step, on a broker in memory.

The publishers are the real ones; only their transactions are played. While one driver stands at a
step, another one may run, and be stopped at a step of its own: whoever stood there is then a
zombie that goes on with what it had read.
"""

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hapax.core.errors import BatchAbortedError, HapaxError, ProducerDeadError, StopError
from hapax.core.records import Message
from hapax.engines.spark.dataframe.parts import LaneReport, Manifest, Publication, Publishing
from hapax.kafka.produce import micro_batch
from hapax.kafka.produce.micro_batch import KafkaPublisher, MarkedNames
from hapax.spark import publish_lanes
from tests.kit.sink_parts import batch, sink_settings, spool_of, staged
from tests.kit.turn import of_this_turn

BATCHES, TASKS, ROWS = 3, 4, 8
SCHEDULES = of_this_turn(40, 200)
SEEDS = range(1000)
DEPTH_MAX = 2
KILL, FREEZE, DOUBT = 0.03, 0.08, 0.05
SETTINGS = sink_settings("broker:9092", "out")


class Killed(BaseException):
    """A process ends here."""


class World:
    """What a broker and a checkpoint keep."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.epochs: dict[str, int] = {}
        self.markers: dict[str, tuple[int, str]] = {}
        self.log: list[bytes | None] = []
        self.through = 0
        self.depth = 0
        self.faults = 0

    def step(self) -> None:
        """A process is at a step: it may end, or stand still while another one runs."""
        dice = self.rng.random()
        if dice < KILL and self.depth:
            self.faults += 1
            raise Killed
        if KILL <= dice < KILL + FREEZE and 0 < self.depth <= DEPTH_MAX:
            self.faults += 1
            self.driver()

    def driver(self) -> None:
        """Run a driver until it is through, is killed, or gives up."""
        self.depth += 1
        try:
            self.drive()
        except (Killed, HapaxError):
            return
        finally:
            self.depth -= 1

    def drive(self, batches: int = BATCHES) -> None:
        # Rows that travel in messages outlive the files of their micro-batch.
        spool = spool_of(self.folder, self.rng.choice([0, 200]))
        for number in range(self.through, batches):
            values = [b"%d-%d" % (number, row) for row in range(ROWS)]
            self.rng.shuffle(values)
            parcels = staged(spool, number, [values[task::TASKS] for task in range(TASKS)])
            lanes = self.rng.choice([0, 2, 3])
            run = partial(run_lanes, self)
            publishing = Publishing(publisher(), "out", "out", frozenset(), run, lanes)
            Publication(publishing, batch(number), spool, parcels).publish()
            spool.clear(number)
            self.step()
            self.through = max(self.through, number + 1)


def publisher() -> KafkaPublisher:
    made = KafkaPublisher(
        SETTINGS, clock=time, forward=lambda *_: None, logger=None, watch=lambda _: nullcontext()
    )
    unseen: Any = lambda _topics: None  # noqa: E731 - there is no topic to look at
    made._found = unseen  # type: ignore[method-assign]
    return made


def run_lanes(world: World, plans: Sequence[Any]) -> list[LaneReport]:
    reports: list[LaneReport] = []
    for plan in world.rng.sample(plans, len(plans)):
        for _attempt in range(3):
            try:
                reports += publish_lanes(SETTINGS, [plan])
            except Killed:
                if world.rng.random() < 0.5:
                    raise
            else:
                break
    return reports


class Played:
    """A MarkedTransaction on the world."""

    world: World

    def __init__(self, settings: object, names: MarkedNames, **_around: object) -> None:
        self.id, self.group = names
        self.deadline_s, self.age_s = 0.0, 1.0  # so that each parcel has a transaction
        self.transaction: Any = self
        self.list_topics = None
        self.epoch = -1

    def open(self) -> None:
        self.world.step()
        self.epoch = self.world.epochs.get(self.id, 0) + 1
        self.world.epochs[self.id] = self.epoch
        self.world.step()

    def opened(self) -> tuple[int, str] | None:
        self.open()
        return self.world.markers.get(self.group)

    def refusal(self) -> None:
        return None

    def send(self, chunks: Iterable[Sequence[Message]]) -> dict[str, int]:
        self.sent = []
        for chunk in chunks:
            self.world.step()
            self.sent += [message.value for message in chunk]
        return {"out": len(self.sent)} if self.sent else {}

    def commit(
        self, number: int, metadata: str, others: Mapping[str, tuple[int, str]] | None = None
    ) -> None:
        self.world.step()
        if self.world.epochs[self.id] != self.epoch:
            raise ProducerDeadError("fenced", fenced=True)
        self.world.markers |= {self.group: (number, metadata)} | dict(others or {})
        self.world.log += self.sent
        self.world.step()
        if self.world.depth and self.world.rng.random() < DOUBT:
            raise ProducerDeadError("commit outcome unknown")

    def close(self) -> None:
        return


@pytest.fixture
def play(monkeypatch, tmp_path):
    monkeypatch.setattr(micro_batch, "MarkedTransaction", Played)
    monkeypatch.setattr("hapax.engines.spark.dataframe.staging.Place.sync", lambda *_: None)

    def played(seed: int) -> World:
        folder = tmp_path / str(seed)
        folder.mkdir()
        world = Played.world = World(seed, folder)
        for _start in range(6):
            world.driver()
        world.drive(BATCHES + 1)  # outside of all faults: it must come through, and clean up
        return world

    return played


def wrong(world: World) -> bool:
    wanted = sorted(b"%d-%d" % (n, row) for n in range(BATCHES + 1) for row in range(ROWS))
    return sorted(world.log, key=lambda value: value or b"") != wanted


def test_whatever_dies_or_comes_back_each_row_is_published_once(play):
    faults = 0
    for seed in SCHEDULES:
        world = play(seed)
        faults += world.faults
        assert not wrong(world), f"seed {seed}"
        assert list(world.folder.iterdir()) == [], f"seed {seed}"
    assert faults > len(SCHEDULES)


def caught(play: Callable[[int], World]) -> bool:
    for seed in SEEDS:
        try:
            if wrong(play(seed)):
                return True
        except HapaxError:
            return True
    return False


@pytest.mark.parametrize(
    "published",
    [lambda *_: 0, lambda _lane, _manifest, marker: marker.done],
    ids=["no markers of lanes", "any marker"],
)
def test_without_the_markers_of_lanes_or_where_any_is_trusted_rows_are_doubled_or_lost(
    play, monkeypatch, published
):
    monkeypatch.setattr(micro_batch, "published_parcels", published)
    assert caught(play)


def test_with_a_choice_of_rows_for_each_repetition_rows_are_doubled_or_lost(play, monkeypatch):
    class Choosing(Publication):
        def _finished(self, fixed: Any, manifest: Any) -> Any:
            own = Manifest.of(self.batch, self.parcels, fixed.lanes)
            return super()._finished(fixed, own)

        def _together(self) -> Any:
            self.publishing = self.publishing._replace(lanes=2)
            return self._shared_out()

    monkeypatch.setitem(globals(), "Publication", Choosing)
    assert caught(play)


def test_a_lane_whose_record_is_refused_ends_at_once_and_names_it():
    tries: list[None] = []

    def marker() -> None:
        tries.append(None)
        raise BatchAbortedError("refused")

    transaction = SimpleNamespace(refusal=lambda: (3, "it is too large"))
    lane: Any = SimpleNamespace(opened=marker, transaction=transaction)
    published = micro_batch.LanePublished()
    with pytest.raises(StopError, match=r"number 3 from parcel 0 of lane 1: it is too large"):
        micro_batch.publish_lane(lane, 1, "m", [], published, attempts_max=4)
    assert len(tries) == 1
