"""What runs during the whole demo: servers, topics, processes, and a way to wait for them.

What is published comes from a seed: the same gives the same bursts, however fast they are sent. The
shop's producers have no faults.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from functools import partial
from random import Random
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, TypeVar

import msgspec
from confluent_kafka import KafkaError, Message, Producer

from hapax.core.errors import HapaxError
from hapax.demo.orders import (
    DEAD_LETTERS,
    ORDERS,
    ORDINARY_DEAD_LETTERS,
    ORDINARY_PRICED,
    PARTITIONS,
    PRICED,
    Line,
    Order,
)
from hapax.kafka.errors import offset_of, place_of
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.sandbox import Sandbox
from hapax.sandbox.processes import STOP_TIMEOUT_S, ManagedProcess
from hapax.sandbox.watchdog import ChildWatchdog
from hapax.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import ExitStack

APP, ORDINARY = "demo", "ordinary"
SESSION_TIMEOUT_S, TRANSACTION_TIMEOUT_S = 6, 4
INPUTS = [(ORDERS, number) for number in range(PARTITIONS)]
OUTPUTS = [(PRICED, number) for number in range(PARTITIONS)]
ORDINARY_OUTPUTS = [(ORDINARY_PRICED, number) for number in range(PARTITIONS)]
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
BY_KEY = -1
_ABORTED, _REPEAT, _ELSEWHERE, _POISON = 0.1, 0.02, 0.5, 0.005
_CUSTOMERS, _REMEMBERED, _BURSTS_PER_S = 500, 3000, 20
_BEHIND_S_MAX, _TIMEOUT_S = 1.0, 30.0
Kind = TypeVar("Kind", bound=ManagedProcess)


class DemoError(HapaxError):
    """The demo cannot continue. The message says what happened, with a log's last lines."""


class DemoFault(msgspec.Struct):
    """One fault that really struck.

    kind          kill or freeze; of Spark: driver kill or Python worker kill
    while_doing   what is known to have gone on at that moment
    back_after_s  until the process itself committed again; None for the ordinary loop
    """

    kind: str
    target: str
    while_doing: str
    back_after_s: float | None = None

    @property
    def sentence(self) -> str:
        back = "" if self.back_after_s is None else f"; commits again after {self.back_after_s} s"
        return f"{self.kind}: {self.target}, {self.while_doing}{back}"


class HandOver(msgspec.Struct):
    """One engine left, and the other one continued under the same name.

    left_after_s     from SIGTERM until the predecessor was gone, drained
    commits_after_s  from SIGTERM until the first commit of the successor
    published        records that came in meanwhile
    exit_code        of the predecessor
    """

    predecessor: str
    successor: str
    left_after_s: float
    commits_after_s: float
    published: int
    exit_code: int

    @property
    def sentence(self) -> str:
        return (
            f"hand-over: {self.predecessor} left {self.left_after_s} s after SIGTERM, "
            f"{self.successor} commits after {self.commits_after_s} s; "
            f"{self.published:,} records came in meanwhile"
        )


class Screen(Protocol):
    """Where the demo shows its phase, what has happened, and figures that move."""

    def phase(self, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def figures(self, text: str) -> None: ...


class Stage:
    """Everything the story needs; what was started ends with the block, however it ends.

    workers    those of the service that run now, configured as a user does: by environment
    ordinary   the loop alongside them, on the same input
    publisher  feeds both
    judges     audit the workers, and the ordinary loop, at the end
    offsets    answers for the pipeline's group; ``ordinary_offsets``: for the loop's
    """

    engine = "worker"
    exports: ClassVar[dict[str, str]] = {}
    """What else the environment of a process in place of these has to say."""
    patience_s = 60.0
    """How long anything may take that is waited for."""

    def __init__(self, screen: Screen, exits: ExitStack, *, seed: int, rate: int) -> None:
        self.screen = screen
        self.struck = self.ordinary_restarts = 0
        self.happened: list[DemoFault | HandOver] = []
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
        loop = ("-m", "hapax.demo.orders", servers, ORDINARY)
        self.ordinary = self._process(ManagedProcess, "ordinary-loop", loop)
        judge = ("-m", "hapax", "audit", "--json")
        self.judges = [
            self._process(ManagedProcess, "audit of Hapax", judge),
            self._process(ManagedProcess, "audit of the ordinary loop", judge, **_ORDINARY),
        ]
        self.offsets, self.ordinary_offsets = (
            exits.enter_context(closing(BlockingOffsets(load_settings(self.environment() | other))))
            for other in ({}, _ORDINARY)
        )
        self.publisher = OrderPublisher(servers, Traffic(seed), rate)
        exits.callback(self.publisher.stop)

    def environment(self) -> dict[str, str]:
        return self.sandbox.environment() | _WORKERS

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

    def note(self, *happened: DemoFault | HandOver) -> None:
        """Keep it for the summary, and show it."""
        self.happened += happened
        for one in happened:
            self.screen.note(one.sentence)

    @property
    def hand_overs(self) -> list[HandOver]:
        return [one for one in self.happened if isinstance(one, HandOver)]

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
        self.publisher.check()
        if self.ordinary in self._watched and not self.ordinary.running:
            # As any supervisor would. It has no exactly-once promise to break.
            self.ordinary.start()
            self.ordinary_restarts += 1
        now_s = time.monotonic()
        if now_s - self._shown_s > _FIGURES_INTERVAL_S:
            self._shown_s = now_s
            self.screen.figures(self._figures())

    def _figures(self) -> str:
        if judging := [one for one in self.judges if one.running]:
            lines = ((one.name, one.last_words().rpartition("\n")[2]) for one in judging)
            return " · ".join(f"{name}: {line or 'reading'}" for name, line in lines)
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


class Event(NamedTuple):
    """One record to publish. ``partition`` BY_KEY: where its key belongs."""

    id: bytes
    key: bytes
    value: bytes
    partition: int = BY_KEY


class Traffic:
    """An endless stream of orders: some sent twice, some poison, some in aborted transactions.

    A repeat has the id and the value of an event published shortly before, in half of the cases
    on another partition. The event it repeats may have been aborted: then the repeat is the first
    that counts.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - the traffic is to be repeatable, not secret
        self._recent: deque[Event] = deque(maxlen=_REMEMBERED)
        self._number = 0

    def burst(self, size: int) -> tuple[bool, list[Event]]:
        """Return whether its transaction is aborted, and its events."""
        return self._random.random() < _ABORTED, [self._event() for _ in range(size)]

    def _event(self) -> Event:
        if self._recent and self._random.random() < _REPEAT:
            event = self._random.choice(self._recent)
            if self._random.random() < _ELSEWHERE:
                return event._replace(partition=self._random.randrange(PARTITIONS))
            return event
        self._number += 1
        name = f"order-{self._number:07}"
        customer = f"customer-{self._random.randrange(_CUSTOMERS)}"
        event = Event(name.encode(), customer.encode(), self._value(name, customer))
        self._recent.append(event)
        return event

    def _value(self, name: str, customer: str) -> bytes:
        roll = self._random
        poisoned = roll.random() < _POISON
        if poisoned and roll.random() < _ELSEWHERE:
            return b'{"order":"' + name.encode() + b'","lines":'
        lines = [
            Line(f"article-{roll.randrange(100)}", roll.randint(1, 5), roll.randint(99, 9_999))
            for _ in range(roll.randint(2, 4))
        ]
        return msgspec.json.encode(Order(name, customer, [] if poisoned else lines))


class OrderPublisher:
    """Publishes at a steady pace until it is asked to stop; the last burst is aborted.

    visible  records in committed transactions; ``events``: the ids among them; ``last``: the last
             offset of these in each partition
    aborted  records in transactions that were aborted
    """

    def __init__(self, bootstrap_servers: str, traffic: Traffic, rate: int) -> None:
        self._traffic = traffic
        self._size = max(1, rate // _BURSTS_PER_S)
        self._interval_s = self._size / rate
        self._asked_to_stop = threading.Event()
        self._properties: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": "shop",
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "log_level": 0,
        }
        self.visible = self.aborted = 0
        self.events: set[bytes] = set()
        self.last: dict[int, int] = {}
        self._work: Future[None] | None = None

    @property
    def published(self) -> int:
        return self.visible + self.aborted

    def start(self) -> None:
        self._work = ThreadPoolExecutor(1, "publisher").submit(self._publish)

    def check(self) -> None:
        """Raise DemoError for what ended it before its time."""
        if self._work and self._work.done() and (error := self._work.exception()):
            raise DemoError(f"publishing failed: {error}")

    def stop(self) -> None:
        self._asked_to_stop.set()
        wait([self._work] if self._work else [])

    def _publish(self) -> None:
        producer = Producer(self._properties)
        producer.init_transactions(_TIMEOUT_S)
        due_s = time.monotonic()
        while not self._asked_to_stop.wait(max(0.0, due_s - time.monotonic())):
            aborted, events = self._traffic.burst(self._size)
            self._send(producer, events, aborted=aborted)
            due_s = max(due_s + self._interval_s, time.monotonic() - _BEHIND_S_MAX)
        self._send(producer, self._traffic.burst(self._size)[1], aborted=True)

    def _send(self, producer: Producer, events: list[Event], *, aborted: bool) -> None:
        placed: dict[int, int] = {}

        def delivered(_error: KafkaError | None, message: Message) -> None:
            _topic, partition = place_of(message)
            placed[partition] = max(offset_of(message), placed.get(partition, 0))

        producer.begin_transaction()
        for one in events:
            what = (ORDERS, one.value, one.key, one.partition)
            producer.produce(*what, on_delivery=delivered, headers={"message-id": one.id})
        if aborted:
            # Without this the client would throw the records away instead of the broker.
            producer.flush(_TIMEOUT_S)
            producer.abort_transaction(_TIMEOUT_S)
            self.aborted += len(events)
            return
        producer.commit_transaction(_TIMEOUT_S)  # it fails where one of them was not delivered
        self.last |= placed
        self.visible += len(events)
        self.events.update(event.id for event in events)
