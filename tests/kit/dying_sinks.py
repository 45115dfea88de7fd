"""The sink in a process that kills itself at a chosen step of the commit, or finds damage."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from hapax.engines.spark.dataframe.parts import LanePlan, LaneReport, Publishing
from hapax.engines.spark.dataframe.sink import SinkOptions
from hapax.settings import Settings
from hapax.spark import HapaxSink, publish_lanes, settings_of

Run = Callable[[Sequence[LanePlan]], list[LaneReport]]

STEPS = ("open", "begin", "send", "send_offsets", "commit", "published")


class DyingSink(HapaxSink):
    """Dies at the step that the folder's file ``step`` names; the file goes with it."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    @classmethod
    @contextmanager
    def publishing(cls, options: SinkOptions) -> Iterator[Publishing]:
        step = (Path(options.spool).parent / "step").read_text()
        with super().publishing(options) as publishing:
            publisher: Any = publishing.publisher
            if step == "published":
                publisher.publish = _dies_after(publisher.publish)
            elif step == "finished":
                publisher.finish = _dies_after(publisher.finish)
            elif step in STEPS:
                setattr(publisher._marked.transaction, step, _die)
            yield publishing._replace(run=cls._dying(step, publishing.run, options))

    @classmethod
    def _dying(cls, _step: str, run: Run, _options: SinkOptions) -> Run:
        return run


def _dies_after(call: Callable[..., object]) -> Callable[..., Any]:
    return lambda *arguments: (call(*arguments), _die())


def _die(*_arguments: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


PART_STEPS = ("open", "commit", "fixed", "lane 0", "task", "lanes", "finished")


class DyingPartsSink(DyingSink):
    """Dies at the step of a publication in parts that the file ``step`` names; it goes with it.

    fixed     the rows are chosen, no lane has published
    lane 0    one lane has, and no task runs for the others
    task      a task of Spark dies behind its first parcel
    lanes     all lanes have; the marker does not say so
    finished  the marker says so; the rows still wait
    """

    @classmethod
    def name(cls) -> str:
        return "dying-parts"

    @classmethod
    def _dying(cls, step: str, run: Run, options: SinkOptions) -> Run:
        if step == "fixed":
            return _die
        if step == "lane 0":
            return _dies_after(lambda plans: run(plans[:1]))
        if step == "lanes":
            return _dies_after(run)
        if step == "task":
            desk = cls.desk
            assert desk is not None
            return partial(desk.run, options.spool, partial(_dying_lanes, settings_of(options)))
        return run


def _dying_lanes(settings: Settings, plans: Iterable[LanePlan]) -> Iterator[LaneReport]:
    """Publish the first parcel of each lane, then die: a task that is killed."""
    for plan in plans:
        yield from publish_lanes(settings, [msgspec.structs.replace(plan, shares=plan.shares[:1])])
    _die()


class LosingSink(HapaxSink):
    """Loses a file of the spool when the rows are fixed; it lies beside the checkpoint then."""

    @classmethod
    def name(cls) -> str:
        return "losing"

    @classmethod
    @contextmanager
    def publishing(cls, options: SinkOptions) -> Iterator[Publishing]:
        with super().publishing(options) as publishing:
            run = publishing.run

            def losing(plans: Sequence[LanePlan]) -> list[LaneReport]:
                file = Path(plans[-1].shares[-1].parcel.path or "")
                file.rename(Path(options.checkpoint) / file.name)
                return run(plans)

            yield publishing._replace(run=losing)
