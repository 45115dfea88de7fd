"""One pipeline as its users see it: topics, environment, processes, and what can be read."""

import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hapax.core.records import Record
from hapax.sandbox import Sandbox, SandboxTopic
from tests.kit.managed_process import HANG_S, Kind, WorkerProcess, clean_environment
from tests.kit.topics import Given, committed, lag, produce, read_back
from tests.kit.waiting import await_


def environment(app: str, source: str, target: str, dead: str, **more: str) -> dict[str, str]:
    """Return the whole environment of a process of the service; ``more`` with ``HAPAX_``."""
    return {
        **clean_environment(),
        "HAPAX_APP": app,
        "HAPAX_INPUT__TOPICS": source,
        "HAPAX_OUTPUT__TOPIC": target,
        "HAPAX_DEAD_LETTER__TOPIC": dead,
        "HAPAX_TELEMETRY__PORT": "0",
        "HAPAX_TELEMETRY__ADDRESS": "127.0.0.1",
        "HAPAX_TELEMETRY__LOG_FORMAT": "json",
        **more,
    }


class PipelineUnderTest:
    """Topics of its own, ``in``, ``out`` and ``dead``, and the workers between them.

    ``settings`` are the group and name after ``HAPAX_``; None takes a variable away.
    ``kind`` is what its workers are.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        folder: Path,
        *,
        partitions: int = 1,
        app: str | None = None,
        kind: type[WorkerProcess] = WorkerProcess,
        **settings: str | None,
    ) -> None:
        self.bootstrap = sandbox.bootstrap_servers
        self.app = app or f"route-{uuid.uuid4().hex[:12]}"
        self.source, self.target, self.dead_letters = (
            f"{self.app}-{name}" for name in ("in", "out", "dead")
        )
        self.sandbox = sandbox
        self._folder = folder
        self.workers: list[WorkerProcess] = []
        self._partitions = partitions
        self._kind = kind
        names = (self.app, self.source, self.target, self.dead_letters)
        self._environment = environment(
            *names,
            HAPAX_KAFKA__BOOTSTRAP_SERVERS=self.bootstrap,
            HAPAX_TRANSFORM="tests.kit.orders:obey",
        )
        self._environment = self.environment(**settings)

    def create(self, **config: Mapping[str, str]) -> None:
        """Create all topics; ``config`` by role: source, target, dead_letters."""
        self.sandbox.create_topics(
            SandboxTopic(self.source, self._partitions, config.get("source")),
            SandboxTopic(self.target, self._partitions, config.get("target")),
            SandboxTopic(self.dead_letters, 1, config.get("dead_letters")),
        )

    # -- processes ------------------------------------------------------------------------

    def worker(self, instance: str = "w-0", **settings: str | None) -> WorkerProcess:
        return self.start(self._kind, instance, **settings)

    def start(self, kind: type[Kind], instance: str, **settings: str | None) -> Kind:
        log = self._folder / f"{self.app}-{len(self.workers)}.log"
        worker = kind(self.environment(**settings), instance, log)
        self.workers.append(worker)
        worker.start()
        return worker

    def environment(self, **settings: str | None) -> dict[str, str]:
        """Return the whole environment of a worker but for its name."""
        environment = dict(self._environment)
        for name, value in settings.items():
            environment.pop(f"HAPAX_{name}", None)
            if value is not None:
                environment[f"HAPAX_{name}"] = value
        return environment

    def run_to_end(self, **settings: str | None) -> WorkerProcess:
        """Let one worker do all there is; it leaves by itself, content."""
        worker = self.worker("w-0", STOP_AFTER__AT_END="true", **settings)
        worker.ends_with(0)
        return worker

    def end(self, worker: WorkerProcess) -> None:
        """Let a worker do all there is, and leave when it is asked to."""
        self.await_lag_0()
        assert worker.terminate() == 0, worker.text()

    def close(self) -> None:
        for worker in self.workers:
            worker.close()

    # -- topics ---------------------------------------------------------------------------

    def write(self, *records: bytes | Given) -> None:
        produce(self.bootstrap, self.source, *records)

    def outputs(self) -> list[Record]:
        return read_back(self.bootstrap, self.target)

    def dead(self) -> list[Record]:
        return read_back(self.bootstrap, self.dead_letters)

    def committed(self) -> dict[int, int | None]:
        return committed(self.bootstrap, self.app, self.source)

    def lag(self) -> int:
        return lag(self.bootstrap, self.app, self.source)

    def await_lag_0(self, within_s: float = HANG_S) -> None:
        await_(lambda: self.lag() == 0, within_s, self._logs)

    def await_outputs(self, count: int, within_s: float = HANG_S) -> None:
        await_(lambda: len(self.outputs()) >= count, within_s, self._logs)

    def _logs(self) -> str:
        return "\n".join(worker.text()[-3000:] for worker in self.workers)


def metric(exposition: str, name: str) -> float:
    """Return the value of a series without labels, or the sum of all that have some."""
    found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", exposition, re.MULTILINE)
    assert found, f"{name} is not among the metrics"
    return sum(map(float, found))


class Done(NamedTuple):
    """A route whose input has had its effects, and the worker that made them."""

    route: PipelineUnderTest
    worker: WorkerProcess

    def outputs_of(self, offset: int) -> list[Record]:
        return [each for each in self.route.outputs() if source(each) == offset]

    def sum(self, fact: str) -> int:
        return sum(int(str(line[fact])) for line in self.worker.lines("transaction_committed"))


def source(record: Record) -> int:
    return int(header(record, "hapax-source").rsplit("/", 1)[1])


def header(record: Record, name: str) -> str:
    return (dict(record.headers)[name] or b"").decode()


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]
