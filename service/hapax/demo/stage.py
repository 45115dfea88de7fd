"""What runs during the whole demo: servers, topics, processes, and a way to wait for them."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from hapax.demo.child import Child, DemoError
from hapax.demo.damage import DemoFault, HandOver
from hapax.demo.ordinary import Route
from hapax.demo.publisher import OrderPublisher
from hapax.demo.readings import GroupReadings, OpenTransactions
from hapax.demo.traffic import PARTITIONS, Traffic
from hapax.sandbox import Sandbox
from hapax.sandbox.watchdog import ChildWatchdog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from hapax.demo.screen import DemoScreen

Told = TypeVar("Told", DemoFault, HandOver)
ORDERS, PRICED, DEAD_LETTERS = "orders", "orders-priced", "orders-dead"
ORDINARY_PRICED, ORDINARY_DEAD_LETTERS = "ordinary-priced", "ordinary-dead"
APP, ORDINARY = "demo", "ordinary"
SESSION_TIMEOUT_S, TRANSACTION_TIMEOUT_S = 6, 4
_POLL_S, _FIGURES_INTERVAL_S = 0.01, 0.5


class Stage:
    """Everything the story needs; what was started ends with the block, however it ends.

    workers    those of the service that run now, configured as a user does: by environment
    ordinary   the loop alongside them, on the same input
    publisher  feeds both
    """

    engine = "worker"
    patience_s = 60.0
    """How long anything may take that is waited for."""

    def __init__(self, screen: DemoScreen, *, seed: int, rate: int) -> None:
        self.screen = screen
        self.sandbox = Sandbox(nodes=1)
        self.struck = 0
        self.ordinary_restarts = 0
        self._traffic = Traffic(seed)
        self._rate = rate
        self._exits = ExitStack()
        self._watched: set[Child] = set()
        self._shown_s = 0.0

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self._exits.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exits.close()

    def environment(self) -> dict[str, str]:
        """Return the variables with which all workers run."""
        return {
            **self.sandbox.environment(),
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

    def exports(self) -> dict[str, str]:
        """Return the variables with which a user continues where the demo ended."""
        return self.environment()

    def begin(self) -> float:
        """Start all processes and publish; return the seconds until all workers have committed."""
        began_s = time.monotonic()
        for child in (*self.workers, self.ordinary):
            self.start(child)
        self.publisher.start()
        for worker in self.workers:
            told = partial(worker.has_told, "transaction_committed")
            self.wait(told, f"{worker.name} starts to commit")
        return time.monotonic() - began_s

    def tell(self, *told: Told) -> list[Told]:
        """Show what has happened, and return it."""
        for one in told:
            self.screen.note(one.sentence)
        return list(told)

    def start(self, child: Child) -> None:
        """Start a process; from now on it must not end by itself."""
        child.start()
        self._watched.add(child)

    def kill(self, child: Child) -> None:
        """Kill a process; raise DemoError when it was dead already."""
        self._watched.discard(child)
        if not child.kill():
            child.check()

    def leave(self, child: Child) -> int:
        """Ask a process to drain and exit; return its exit code."""
        self._watched.discard(child)
        return child.terminate()

    def wait(
        self, condition: Callable[[], object], what: str, timeout_s: float | None = None
    ) -> None:
        """Wait until ``condition`` holds, and see to it that the processes live meanwhile.

        Raises DemoError: a worker ended, publishing failed, or the time is up.
        """
        timeout_s = self.patience_s if timeout_s is None else timeout_s
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            self._attend()
            if time.monotonic() > deadline_s:
                words = "\n".join(
                    f"{worker.name}:\n{worker.last_words()}" for worker in self.workers
                )
                raise DemoError(f"{what}: not within {timeout_s:.0f} s. Last lines:\n{words}")
            time.sleep(_POLL_S)

    def _attend(self) -> None:
        for child in self._watched - {self.ordinary}:
            child.check()
        if self.publisher.error is not None:
            raise DemoError(f"publishing failed: {self.publisher.error}")
        if self.ordinary in self._watched and self.ordinary.exit_code is not None:
            # As any supervisor would. It has no exactly-once promise to break.
            self.ordinary.start()
            self.ordinary_restarts += 1
        now_s = time.monotonic()
        if now_s - self._shown_s > _FIGURES_INTERVAL_S:
            self._shown_s = now_s
            self.screen.figures(
                f"published {self.publisher.published:,} · faults {self.struck} · "
                f"lag: hapax {self.group.lag():,}, ordinary loop {self.ordinary_group.lag():,}"
            )

    def _build(self) -> None:
        self._exits.enter_context(self.sandbox)
        shared = dict.fromkeys((ORDERS, PRICED, ORDINARY_PRICED), PARTITIONS)
        dead_letters = dict.fromkeys((DEAD_LETTERS, ORDINARY_DEAD_LETTERS), 1)
        self.sandbox.kafka.create_missing(shared | dead_letters)
        servers = self.sandbox.bootstrap_servers
        watchdog = ChildWatchdog()  # ends the processes if the demo is killed
        self._exits.callback(watchdog.close)
        folder = self.sandbox.kafka.brokers[0].folder.parent
        self.workers = self._cast(folder, watchdog)
        route = Route(servers, ORDERS, ORDINARY_PRICED, ORDINARY_DEAD_LETTERS, ORDINARY)
        self.ordinary = Child(
            "ordinary-loop", ["-m", "hapax.demo.ordinary", *route], {}, folder, watchdog
        )
        self._exits.callback(self.ordinary.end)
        self.group = GroupReadings(servers, APP, ORDERS, PARTITIONS)
        self.ordinary_group = GroupReadings(servers, ORDINARY, ORDERS, PARTITIONS)
        self._exits.callback(self.group.close)
        self._exits.callback(self.ordinary_group.close)
        self.transactions = OpenTransactions(servers, PRICED, PARTITIONS)
        self._exits.callback(self.transactions.close)
        self.publisher = OrderPublisher(servers, ORDERS, self._traffic, self._rate)
        self._exits.callback(self.publisher.cancel)

    def _cast(self, folder: Path, watchdog: ChildWatchdog) -> list[Child]:
        """Return the workers to begin with; those that were started end with the block."""
        return [self._worker(f"{APP}-{number}", folder, watchdog) for number in range(2)]

    def _worker(self, instance: str, folder: Path, watchdog: ChildWatchdog) -> Child:
        environment = {**self.environment(), "HAPAX_INSTANCE": instance}
        worker = Child(instance, ["-m", "hapax", "run"], environment, folder, watchdog)
        self._exits.callback(worker.end)
        return worker
