"""A pipeline into which events flow while its workers come and go, judged by the checker."""

from pathlib import Path
from typing import Any

from hapax.sandbox import Sandbox
from tests.fault.checking import judge as checking
from tests.fault.checking.judge import Topics
from tests.fault.feeding.feed import UNLIMITED, Feeder
from tests.fault.feeding.ledger import Ledger
from tests.fault.results import Judgement
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.waiting import await_

PARTITIONS = 4
FINISH_S = 120.0


class Flow(PipelineUnderTest):
    """Events as tests/fault/rules.py says; ``settings`` are names after ``HAPAX_``."""

    def __init__(self, sandbox: Sandbox, folder: Path, **settings: str | None) -> None:
        given: dict[str, Any] = {
            name.removeprefix("HAPAX_"): text for name, text in sandbox.environment().items()
        }
        given |= {"TRANSFORM": "tests.fault.business:split", **settings}
        super().__init__(sandbox, folder, partitions=PARTITIONS, **given)
        self.create()
        second = f"{self.target}-2"
        sandbox.create_topic(second, PARTITIONS)
        self.topics = Topics(
            bootstrap=self.bootstrap,
            app=self.app,
            source=self.source,
            outputs=(self.target, second),
            dead=self.dead_letters,
            headers=True,
        )
        self._feeder = Feeder(
            self.bootstrap, self.source, folder, run=self.app, partitions=PARTITIONS, rate=0, seed=1
        )
        self._ledger: Ledger | None = None

    def feed(self, records: int) -> None:
        self.feed_beside(UNLIMITED)
        await_(lambda: self._feeder.written >= records, 60, lambda: f"{self._feeder.written}")
        self.stop_feeding()

    def feed_beside(self, records_per_s: int) -> None:
        """Keep writing until ``stop_feeding``; may be called again after it."""
        if not self._feeder.running:
            self._feeder.start()
        self._feeder.pace(records_per_s)

    def stop_feeding(self) -> None:
        """Write nothing more, and let what is under way arrive."""
        self._ledger = self._feeder.pause()

    def finish(self, timeout_s: float = FINISH_S) -> Judgement:
        """Stop feeding, let the workers reach the end, stop them, judge."""
        self.stop_feeding()
        self.await_lag_0(timeout_s)
        codes = {worker.instance: worker.terminate() for worker in self.workers if worker.running}
        assert set(codes.values()) <= {0}, codes
        return self.judge()

    def judge(self) -> Judgement:
        """Judge all that ever went through; nothing is being fed, and lag is 0."""
        assert self._ledger is not None, "stop feeding first"
        return checking.judge(self.topics, self._ledger, None)

    def close(self) -> None:
        self._feeder.close()
        super().close()
