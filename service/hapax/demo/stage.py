"""What runs during the whole demo: servers, topics, processes, and a way to wait for them."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from hapax.core.errors import HapaxError
from hapax.demo.orders import (
    DEAD_LETTERS,
    ORDERS,
    ORDINARY_DEAD_LETTERS,
    ORDINARY_PRICED,
    PARTITIONS,
    PRICED,
)
from hapax.demo.traffic import OrderPublisher, Traffic
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.sandbox import Sandbox
from hapax.sandbox.processes import STOP_TIMEOUT_S, ManagedProcess
from hapax.sandbox.watchdog import ChildWatchdog
from hapax.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hapax.demo.story import Screen

APP, ORDINARY = "demo", "ordinary"
SESSION_TIMEOUT_S, TRANSACTION_TIMEOUT_S = 6, 4
INPUTS = [(ORDERS, number) for number in range(PARTITIONS)]
OUTPUTS = [(PRICED, number) for number in range(PARTITIONS)]
RUN = ("-m", "hapax", "run")
_POLL_S, _FIGURES_INTERVAL_S = 0.01, 0.5
_WORKERS = {
    "HAPAX_APP": APP,
    "HAPAX_INPUT__TOPICS": ORDERS,
    "HAPAX_OUTPUT__TOPIC": PRICED,
    "HAPAX_DEAD_LETTER__TOPIC": DEAD_LETTERS,
    "HAPAX_TRANSFORM": "hapax.demo.orders:price",
    "HAPAX_GROUP__SESSION_TIMEOUT": f"{SESSION_TIMEOUT_S}s",
    "HAPAX_TRANSACTION__TIMEOUT": f"{TRANSACTION_TIMEOUT_S}s",
    "HAPAX_TELEMETRY__PORT": "0",
    "HAPAX_TELEMETRY__ADDRESS": "127.0.0.1",
    "HAPAX_TELEMETRY__LOG_FORMAT": "json",
}
# What the audit has to know of the ordinary loop.
_ORDINARY = {
    "HAPAX_APP": ORDINARY,
    "HAPAX_OUTPUT__TOPIC": ORDINARY_PRICED,
    "HAPAX_DEAD_LETTER__TOPIC": ORDINARY_DEAD_LETTERS,
}
Kind = TypeVar("Kind", bound=ManagedProcess)


class DemoError(HapaxError):
    """The demo cannot continue. The message says what happened, with a log's last lines."""


class Stage:
    """Everything the story needs; what was started ends with the block, however it ends.

    workers    those of the service that run now, configured as a user does: by environment
    ordinary   the loop alongside them, on the same input
    publisher  feeds both
    judges     audit the workers, and the ordinary loop, at the end
    offsets    answers for the pipeline's group; ``ordinary_offsets``: for the loop's
    """

    engine = "worker"
    patience_s = 60.0
    """How long anything may take that is waited for."""

    def __init__(self, screen: Screen, exits: ExitStack, *, seed: int, rate: int) -> None:
        self.screen = screen
        self.struck = self.ordinary_restarts = 0
        self._watched: set[ManagedProcess] = set()
        self._shown_s = 0.0
        self._exits = exits
        self.sandbox = exits.enter_context(Sandbox(nodes=1))
        shared = dict.fromkeys((ORDERS, PRICED, ORDINARY_PRICED), PARTITIONS)
        dead_letters = dict.fromkeys((DEAD_LETTERS, ORDINARY_DEAD_LETTERS), 1)
        self.sandbox.kafka.create_missing(shared | dead_letters)
        self._watchdog = ChildWatchdog()  # ends the processes if the demo is killed
        exits.callback(self._watchdog.close)
        servers = self.sandbox.bootstrap_servers
        self.workers = self._cast()
        loop = ("-m", "hapax.demo.ordinary", servers, ORDINARY)
        self.ordinary = self._process(ManagedProcess, "ordinary-loop", loop)
        judge = ("-m", "hapax", "audit", "--json")
        self.judges = [
            self._process(ManagedProcess, "audit of Hapax", judge),
            self._process(ManagedProcess, "audit of the ordinary loop", judge, **_ORDINARY),
        ]
        self.settings = load_settings(self.environment())
        self.ordinary_settings = load_settings(self.environment() | _ORDINARY)
        self.offsets = exits.enter_context(closing(BlockingOffsets(self.settings)))
        self.ordinary_offsets = exits.enter_context(
            closing(BlockingOffsets(self.ordinary_settings))
        )
        self.publisher = OrderPublisher(servers, Traffic(seed), rate)
        exits.callback(self.publisher.stop)

    @classmethod
    @contextmanager
    def opened(cls, screen: Screen, *, seed: int, rate: int) -> Iterator[Self]:
        with ExitStack() as exits:
            yield cls(screen, exits, seed=seed, rate=rate)

    def environment(self) -> dict[str, str]:
        return self.sandbox.environment() | _WORKERS

    def exports(self) -> dict[str, str]:
        return self.environment()

    def begin(self) -> float:
        """Start all processes and publish; return the seconds until all workers have committed."""
        began_s = time.monotonic()
        for process in (*self.workers, self.ordinary):
            self.start(process)
        self.publisher.start()
        for worker in self.workers:
            self.await_commit(worker, 0)
        return time.monotonic() - began_s

    def start(self, process: ManagedProcess) -> None:
        process.start()
        self._watched.add(process)

    def kill(self, process: ManagedProcess) -> None:
        """Kill a process; raise DemoError when it was dead already."""
        self._watched.discard(process)
        if not process.kill():
            raise ended_by_itself(process)

    def leave(self, process: ManagedProcess) -> int:
        self._watched.discard(process)
        code = process.terminate()
        if code == -signal.SIGKILL:
            raise DemoError(
                f"{process.name} did not leave within {STOP_TIMEOUT_S:.0f} s. Its last lines:\n"
                f"{process.last_words()}"
            )
        return code

    def await_commit(self, worker: ManagedProcess, since: int) -> None:
        """Wait for a commit that is logged after byte ``since`` of the worker's log."""
        committed = partial(worker.has_logged, "transaction_committed", since)
        self.wait(committed, f"{worker.name} commits")

    def wait(
        self, condition: Callable[[], object], what: str, timeout_s: float | None = None
    ) -> None:
        """Raise DemoError: a process ended, publishing failed, or the time is up."""
        timeout_s = self.patience_s if timeout_s is None else timeout_s
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            self._attend()
            if time.monotonic() > deadline_s:
                words = "\n".join(f"{one.name}:\n{one.last_words()}" for one in self.workers)
                raise DemoError(f"{what}: not within {timeout_s:.0f} s. Last lines:\n{words}")
            time.sleep(_POLL_S)

    def _attend(self) -> None:
        for process in self._watched - {self.ordinary}:
            if not process.running:
                raise ended_by_itself(process)
        if self.publisher.error is not None:
            raise DemoError(f"publishing failed: {self.publisher.error}")
        if self.ordinary in self._watched and not self.ordinary.running:
            # As any supervisor would. It has no exactly-once promise to break.
            self.ordinary.start()
            self.ordinary_restarts += 1
        now_s = time.monotonic()
        if now_s - self._shown_s > _FIGURES_INTERVAL_S:
            self._shown_s = now_s
            self.screen.figures(self._figures())

    def _figures(self) -> str:
        judging = [one for one in self.judges if one.running]
        if judging:
            lines = ((one.name, one.last_words().rpartition("\n")[2]) for one in judging)
            return " · ".join(f"{name}: {line}" for name, line in lines)
        return (
            f"published {self.publisher.published:,} · faults {self.struck} · "
            f"lag: hapax {lag(self.offsets):,}, ordinary loop {lag(self.ordinary_offsets):,}"
        )

    def _cast(self) -> list[ManagedProcess]:
        names = [f"{APP}-{number}" for number in range(2)]
        return [self._process(ManagedProcess, name, RUN, HAPAX_INSTANCE=name) for name in names]

    def _process(self, kind: type[Kind], name: str, words: Sequence[str], **more: str) -> Kind:
        log = self.sandbox.kafka.brokers[0].folder.parent / f"{name}.log"
        log.touch()
        ours = {name: value for name, value in os.environ.items() if not name.startswith("HAPAX_")}
        ours |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | self.environment() | more
        process = kind(name, [sys.executable, *words], log, self._watchdog, ours)
        self._exits.callback(process.kill)
        return process


def committed(client: BlockingOffsets, *, stable: bool = False) -> dict[int, int]:
    """Return offsets by partition; ``stable``: wait for transactions that carry an offset."""
    answers = client.committed(INPUTS, stable=stable)
    return {number: 0 if at is None else at for (_topic, number), at in answers.items()}


def lag(client: BlockingOffsets, *, stable: bool = False) -> int:
    done = committed(client, stable=stable)
    ends = client.last_stable(INPUTS)
    return sum(end - done[partition] for (_topic, partition), end in ends.items())


def ended_by_itself(process: ManagedProcess) -> DemoError:
    return DemoError(
        f"{process.name} ended by itself with exit code {process.exit_code}. Its last lines:\n"
        f"{process.last_words()}"
    )
