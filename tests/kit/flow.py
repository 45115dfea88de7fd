"""A pipeline under test: events that flow in, worker processes that come and go, and a judge.

The judge reads topics back and knows nothing of the service but the environment contract and the
headers that the design promises.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from tests.kit.managed_process import WorkerProcess, clean_environment
from tests.kit.topics import committed, ends, read_back
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from pathlib import Path

    from hapax import Record
    from hapax.sandbox import Sandbox
    from tests.kit.managed_process import Kind

PARTITIONS = 4


@dataclass
class Verdict:
    events: int = 0
    outputs: int = 0
    dead_letters: int = 0
    hidden: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def anomalies(self) -> dict[str, list[str]]:
        found = {
            "lost": self.lost,
            "doubled": self.doubled,
            "disordered": self.disordered,
            "wrong": self.wrong,
        }
        return {name: examples[:8] for name, examples in found.items() if examples}


class Flow:
    """Input, outputs and dead letters of one pipeline, on topics of its own."""

    def __init__(self, sandbox: Sandbox, app: str, folder: Path, **settings: str) -> None:
        self.sandbox = sandbox
        self.app = app
        self.folder = folder
        self.topics = {name: f"{app}-{name}" for name in ("in", "out", "second", "dead")}
        for name, topic in self.topics.items():
            sandbox.create_topic(topic, partitions=1 if name == "dead" else PARTITIONS)
        self.environment = {
            **clean_environment(),
            **sandbox.environment(),
            "HAPAX_APP": app,
            "HAPAX_INPUT__TOPICS": self.topics["in"],
            "HAPAX_OUTPUT__TOPIC": self.topics["out"],
            "HAPAX_DEAD_LETTER__TOPIC": self.topics["dead"],
            "HAPAX_TRANSFORM": "tests.kit.business:split",
            "HAPAX_TELEMETRY__PORT": "0",
            "HAPAX_TELEMETRY__ADDRESS": "127.0.0.1",
            "HAPAX_TELEMETRY__LOG_FORMAT": "json",
            **settings,
        }
        self.workers: list[WorkerProcess] = []
        self._numbers: dict[str, int] = {}
        self._beside = 1_000_000
        self._stop = threading.Event()
        self._feeder: threading.Thread | None = None

    def worker(self, instance: str, **settings: str) -> WorkerProcess:
        return self.start(WorkerProcess, instance, **settings)

    def start(self, kind: type[Kind], instance: str, **settings: str) -> Kind:
        """Start a process of some kind."""
        name = f"{instance}-{len(self.workers)}.log"
        worker = kind(self.environment | settings, instance, self.folder / name)
        self.workers.append(worker)
        worker.start()
        return worker

    # -- input ----------------------------------------------------------------------------

    def feed(self, events: int, *, start: int = 0, rng: random.Random | None = None) -> None:
        """Write events: some twice, some poison, some in transactions, some of those aborted."""
        rng = rng or random.Random(start)
        plain = Producer({"bootstrap.servers": self.sandbox.bootstrap_servers, "linger.ms": 1})
        bound = Producer(
            {
                "bootstrap.servers": self.sandbox.bootstrap_servers,
                "transactional.id": f"{self.app}-feeder-{start}",
            }
        )
        bound.init_transactions(60)
        number = start
        while number < start + events:
            chunk = range(number, min(number + rng.randint(1, 40), start + events))
            number = chunk.stop
            kind = rng.random()
            if kind < 0.4:
                self._write(plain, chunk, rng)
                continue
            bound.begin_transaction()
            if kind < 0.55:
                self._write(bound, range(-chunk.stop, -chunk.start), rng)
                bound.flush(60)
                bound.abort_transaction(60)
                bound.begin_transaction()
            self._write(bound, chunk, rng)
            bound.commit_transaction(60)
        assert plain.flush(60) == 0

    def feed_beside(self, events_per_s: int) -> None:
        """Keep writing until ``stop_feeding``; may be called again after it."""
        self._stop.clear()

        def run() -> None:
            rng = random.Random(self._beside)
            while not self._stop.is_set():
                began_s = time.monotonic()
                self.feed(events_per_s // 5, start=self._beside, rng=rng)
                self._beside += events_per_s // 5
                self._stop.wait(max(0.0, 0.2 - (time.monotonic() - began_s)))

        self._feeder = threading.Thread(target=run, daemon=True)
        self._feeder.start()

    def _write(self, producer: Producer, numbers: range, rng: random.Random) -> None:
        for number in numbers:
            event_id = f"event-{number}"
            if number >= 0:
                self._numbers[event_id] = number
            copies = 2 if rng.random() < 0.05 else 1
            first = rng.randrange(PARTITIONS)
            for copy in range(copies):
                partition = (first + copy * rng.randrange(2)) % PARTITIONS
                event: dict[str, object] = {"n": abs(number), "poison": _is_poison(number)}
                event["second"] = self.topics["second"]
                producer.produce(
                    self.topics["in"],
                    json.dumps(event).encode(),
                    b"key-%d" % (number % 13),
                    partition,
                    headers=[("message-id", event_id.encode()), ("trace", b"t")],
                )
            producer.poll(0)

    # -- ending ---------------------------------------------------------------------------

    def lag(self) -> int:
        bootstrap, topic = self.sandbox.bootstrap_servers, self.topics["in"]
        done = committed(bootstrap, self.app, topic)
        stable = ends(bootstrap, topic)
        return sum(end - (done.get(number) or 0) for number, end in stable.items())

    def await_lag_0(self, timeout_s: float = 120.0) -> float:
        began_s = time.monotonic()
        await_(lambda: self.lag() == 0, timeout_s, lambda: f"lag is {self.lag()}")
        return time.monotonic() - began_s

    def stop_feeding(self) -> None:
        self._stop.set()
        if self._feeder is not None:
            self._feeder.join()

    def finish(self, timeout_s: float = 120.0) -> Verdict:
        """Stop feeding, let the workers reach the end, stop them, judge."""
        self.stop_feeding()
        self.await_lag_0(timeout_s)
        codes = {worker.instance: worker.terminate() for worker in self.workers if worker.running}
        assert set(codes.values()) <= {0}, codes
        return self.judge()

    def close(self) -> None:
        self._stop.set()
        for worker in self.workers:
            worker.close()

    # -- judgement ------------------------------------------------------------------------

    def judge(self) -> Verdict:
        bootstrap = self.sandbox.bootstrap_servers
        verdict = Verdict(events=len(self._numbers))
        copies: dict[str, set[str]] = defaultdict(set)
        for record in read_back(bootstrap, self.topics["in"]):
            copies[_header(record, "message-id")].add(str(record.coordinates))
        assert copies.keys() == self._numbers.keys()
        outputs = [self.topics["out"], self.topics["second"]]
        visible = read_back(bootstrap, outputs)
        verdict.hidden = len(read_back(bootstrap, outputs, "read_uncommitted")) - len(visible)
        verdict.outputs = len(visible)
        self._judge_outputs(visible, copies, verdict)
        self._judge_dead_letters(read_back(bootstrap, self.topics["dead"]), copies, verdict)
        _judge_order(visible, verdict)
        return verdict

    def _judge_outputs(
        self, visible: list[Record], copies: dict[str, set[str]], verdict: Verdict
    ) -> None:
        seen: Counter[tuple[str, bytes | None, str]] = Counter()
        sources: dict[str, set[str]] = defaultdict(set)
        for record in visible:
            event_id = _header(record, "hapax-id")
            sources[event_id].add(_header(record, "hapax-source"))
            seen[(event_id, record.value, record.topic)] += 1
            number = self._numbers.get(event_id)
            if number is None:
                verdict.wrong.append(f"{event_id} was never committed")
                continue
            verdict.wrong += _complaints(record, event_id, number)
        for event_id, named in sources.items():
            if len(named) > 1 or not named <= copies[event_id]:
                verdict.wrong.append(f"{event_id}: sources {named}, copies {copies[event_id]}")
        expected: Counter[tuple[str, bytes | None, str]] = Counter()
        for event_id, number in self._numbers.items():
            for part in range(0 if _is_poison(number) else number % 4):
                topic = self.topics["second" if part % 2 else "out"]
                expected[(event_id, b"%d:%d" % (number, part), topic)] = 1
        verdict.lost += [str(missing) for missing in expected - seen]
        verdict.doubled += [str(extra) for extra in seen - expected]

    def _judge_dead_letters(
        self, dead: list[Record], copies: dict[str, set[str]], verdict: Verdict
    ) -> None:
        seen = Counter(_header(record, "hapax-id") for record in dead)
        verdict.dead_letters = len(dead)
        expected = Counter(name for name, number in self._numbers.items() if _is_poison(number))
        verdict.lost += [f"dead letter {missing}" for missing in expected - seen]
        verdict.doubled += [f"dead letter {extra}" for extra in seen - expected]
        for record in dead:
            event_id = _header(record, "hapax-id")
            if _header(record, "hapax-source") not in copies[event_id]:
                verdict.wrong.append(f"dead letter {event_id}: source")
            if "is poison" not in _header(record, "hapax-error"):
                verdict.wrong.append(f"dead letter {event_id}: error")
            if _header(record, "hapax-attempts") != "3" or not _header(record, "hapax-app"):
                verdict.wrong.append(f"dead letter {event_id}: attempts")


def _complaints(record: Record, event_id: str, number: int) -> list[str]:
    """Say what of key and headers is not as promised."""
    complaints = []
    part = int((record.value or b"").split(b":")[1])
    wanted = {"hapax-id", "hapax-source", "message-id", "trace"}
    if number % 4 > 1:
        wanted.add("hapax-part")
        if _header(record, "hapax-part") != f"{part + 1}/{number % 4}":
            complaints.append(f"{event_id}: part {_header(record, 'hapax-part')}")
    if {name for name, _value in record.headers} != wanted:
        complaints.append(f"{event_id}: headers {record.headers}")
    if record.key != b"key-%d" % (number % 13):
        complaints.append(f"{event_id}: key {record.key!r}")
    return complaints


def _is_poison(number: int) -> bool:
    return number % 50 == 7


def _header(record: Record, name: str) -> str:
    return (dict(record.headers).get(name) or b"").decode()


def _judge_order(visible: list[Record], verdict: Verdict) -> None:
    last: dict[tuple[str, int, str], tuple[int, int]] = {}
    for record in visible:
        topic, partition, offset = _header(record, "hapax-source").rsplit("/", 2)
        part = int((record.value or b"").split(b":")[1])
        way = (record.topic, record.partition, f"{topic}/{partition}")
        if way in last and last[way] > (int(offset), part):
            verdict.disordered.append(f"{record.coordinates}: {offset} after {last[way]}")
        last[way] = (int(offset), part)
