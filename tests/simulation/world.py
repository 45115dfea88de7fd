"""One schedule: brokers, claims, the upstream and processes that come and go, on one clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from random import Random
from zlib import crc32

from greenlet import greenlet  # type: ignore[import-untyped]

from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.core.ports import Clock
from hapax.core.records import Coordinates, Message, Record, TopicPartition
from hapax.testing.broker import MemoryBroker, MemoryLog
from hapax.testing.claims import MemoryClaims
from tests.kit.doubles import CrashError
from tests.simulation.business import BYTES_MAX, INPUTS, RETRY, RETRY_PARTITIONS, event_of, refused
from tests.simulation.chance import Chance, Strike
from tests.simulation.groups import ClassicGroup, ConsumerGroup, Timing
from tests.simulation.judge import Judge
from tests.simulation.keyed import KEPT_TOPIC, Disks, KeptJudge, compact, threads
from tests.simulation.options import Item, Options
from tests.simulation.process import Process
from tests.simulation.scheduler import START_S, STEPS_MAX, Scheduler

CHAOS_S = 4.0
CONTROL_S = 0.1
CALM_MAX_S = 80.0
LIVES_MAX = 60
RESTART_S = 0.1
KEYS = 3
HOUR_MS = 3_600_000
CLOCK_MOVE_S = 1_160.0
"""Three of them and a schedule are less than the hour for which ids are remembered."""


def _aged_claims(clock: Clock) -> MemoryClaims:
    """Return a store whose only generation has been full for a while; so it ends within an hour."""
    claims = MemoryClaims(clock=clock, ttl_ms=HOUR_MS)
    claims.claim([b"before"], [Record("before", 0, 0, None, None)], {})
    claims._kept.ahead_s += HOUR_MS / 2_000 + 200
    return claims


class World:
    """Runs one schedule. ``trace`` collects steps when somebody wants to read them."""

    def __init__(
        self,
        seed: int,
        options: Options,
        *,
        played: Mapping[str, Strike] | None = None,
        trace: list[str] | None = None,
    ) -> None:
        self.options = options
        self.trace = trace
        self.counts: Counter[str] = Counter()
        self.scheduler = Scheduler()
        self.chance = Chance(Random(seed), options, played)
        self.brokers_away_until_s = self.claims_away_until_s = 0.0
        self.fence_causes = 0
        self.emptied = 0
        self._random = Random(seed + 1)
        self._processes: list[Process] = []
        self._greenlets: dict[greenlet, Process] = {}
        self._late = 0
        self._upstream = len(options.items)
        self._calm_s = 0.0
        self._leaving = self._moved_back = False
        self._build()

    def _build(self) -> None:
        options, clock = self.options, self.scheduler
        inputs = [*INPUTS[: options.inputs]]
        topics = {**dict.fromkeys(inputs, options.partitions), "out": 2, "dead": 1}
        if options.later:
            topics[RETRY] = RETRY_PARTITIONS
            inputs.append(RETRY)
        if options.stateful:
            topics[KEPT_TOPIC] = options.partitions
        self.broker = MemoryBroker(
            topics,
            inputs=inputs,
            clock=clock,
            timeout_s=options.transaction_timeout_s,
            scan_s=options.scan_s,
        )
        self.broker.bytes_max = BYTES_MAX
        self.broker.rejects = lambda message: refused(message.topic, message.value)
        timing = Timing(session_s=options.session_s)
        if options.group == "classic":
            self.group: ClassicGroup | ConsumerGroup = ClassicGroup(
                self.broker.inputs, clock, timing, self._instance_of
            )
        else:
            self.group = ConsumerGroup(self.broker.inputs, clock, timing)
            self.group.together = options.inputs > 1
        self.broker.group = self.group
        self.claims = _aged_claims(clock) if options.claims else None
        self._clock_moves = 0
        self.judge = Judge(self.broker)
        self.disks = Disks(self)
        self.kept = KeptJudge(self.judge.note, self.broker)
        self.placed: list[Callable[[tuple[str, int], int, int], None]] = []
        if options.stateful:
            self.judge.kept = self.kept
            self.kept.filtered = options.filtered
            self._produce = self.broker.produce
            self.broker.produce = self._produce_kept  # type: ignore[method-assign] # of this one
        events = Counter(event_of(value) for item in options.items for value in item.values)
        self.judge.expect(events)
        self.broker.watch = self.judge.watch

    def _produce_kept(
        self, name: tuple[str, int], where: TopicPartition, first: int, messages: Sequence[Message]
    ) -> None:
        """Let who has sent to the changelog hear where that is: its delivery report."""
        log = self.broker.logs[where]
        before = log.end
        self._produce(name, where, first, messages)
        if where[0] == KEPT_TOPIC and log.end > before:
            for offset, message in enumerate(messages[before - log.end :], before):
                if message.value is None:
                    self.kept.tombstones[Coordinates(*where, offset)] = self.scheduler.now_s
            for placed in self.placed:
                placed(name, where[1], log.end)

    def pause(self, process: Process, seconds: float) -> None:
        """Let time pass in a process or a thread of it; it may be over afterwards."""
        self.scheduler.sleep(seconds)
        if process.killed or process.left:
            raise CrashError

    def process_of(self, running: greenlet) -> Process:
        return self._greenlets[running]

    def _instance_of(self, name: str) -> str | None:
        return name.rpartition(".")[0] if self.options.static else None

    # -- running --------------------------------------------------------------------------

    def run(self) -> list[tuple[str, str]]:
        """Play to the end; return violations as (class, text)."""
        with threads(self) if self.options.stateful else nullcontext():
            return self._play()

    def _play(self) -> list[tuple[str, str]]:
        for number, item in enumerate(self.options.items):
            self._at(START_S + item.at_s, partial(self._write, number, item))
        for number in range(self.options.workers):
            self._start(f"w{number}")
        self._at(START_S, self._control)
        self.scheduler.run(START_S + CHAOS_S + 3 * CALM_MAX_S)
        if self.scheduler.steps > STEPS_MAX:
            self.judge.note("hang", f"{self.broker.committed} after {STEPS_MAX} steps")
        if not self.judge.found:
            self.scheduler.now_s += 2 * self.options.transaction_timeout_s
            self.broker.expire()
            self.judge.finish(claims=self.claims is not None, emptied=self.emptied)
            if self.kept.reach and not self.judge.found:
                self._move_back()
        for process in self._processes:
            process.killed = True
        self.scheduler.release()
        self.counts["commits"] = self.judge.commits
        self.counts["rebalances"] = self.group.rebalances
        self.counts["expired transactions"] = self.broker.expired
        self.counts["aborted records hidden"] = sum(log.hidden for log in self.broker.logs.values())
        self.counts["steps"] = self.scheduler.steps
        return self.judge.found

    def _move_back(self) -> None:
        """Move the group over what has changed the state: whoever comes next must refuse."""
        where = self._random.choice(sorted(self.kept.reach))
        back = self._random.randrange(self.kept.reach[where] + 1)
        if self.disks.reads_on("w0", where, back, self.broker):
            return
        self.broker.committed[where] = back
        self.tell(f"{where} is moved back to {back}")
        self.broker.watch = self._followed
        self.scheduler.stopped, self._moved_back = False, True
        process = self._start("w0", kept=False)
        self.scheduler.run(self.scheduler.now_s + CALM_MAX_S / 4)
        self.count("moved back")
        if not process.left.startswith("GroupMovedBackError"):
            self.judge.note("state", f"the group was moved back, and it ended so: {process.left}")

    def _followed(self, visible: Sequence[Record], _offsets: Mapping[TopicPartition, int]) -> None:
        if visible:
            self.judge.note("state", f"{visible} came of a group that was moved back")

    def latency(self) -> float:
        """Return how long a request, or its answer, is under way."""
        return self._random.random() * self.options.latency_s

    def tell(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.scheduler.now_s - START_S:8.3f}  {text}")

    def count(self, name: str) -> None:
        self.counts[name] += 1

    def _at(self, when_s: float, event: Callable[[], None]) -> None:
        self.scheduler.at(when_s, event)

    def _control(self) -> None:
        now_s = self.scheduler.now_s
        if self.judge.found:
            self.scheduler.stopped = True
            return
        if not self.chance.over and (self.chance.spent or now_s > START_S + CHAOS_S):
            self._calm_down()
        if not self._leaving and not self._upstream and self._drained():
            self._calm_down()
            self._leaving = True
            for process in self._processes:
                process.lifecycle.stop("drained")
        if self._leaving and not self._processes and not self._late:
            self.scheduler.stopped = True
            return
        if self._calm_s and now_s > self._calm_s + CALM_MAX_S:
            self.judge.note("hang", f"{self.broker.committed} of {self.broker.ends()}")
            self.scheduler.stopped = True
            return
        self._at(now_s + CONTROL_S, self._control)

    def _calm_down(self) -> None:
        """From here on nothing goes wrong any more, and what went wrong is mended."""
        if self._calm_s:
            return
        self.tell("calm")
        self.chance.over = True
        self._calm_s = self.scheduler.now_s
        for process in self._processes:
            if not process.kept:
                process.killed = True

    def _drained(self) -> bool:
        committed = self.broker.committed
        return all(
            committed.get(where, 0) == log.end
            for where, log in self.broker.logs.items()
            if where[0] in {*INPUTS, RETRY}
        )

    # -- upstream -------------------------------------------------------------------------

    def _write(self, number: int, item: Item) -> None:
        log = self._log(number)
        producer = None if item.end == "plain" else f"upstream-{number}"
        for value in item.values:
            headers = (("id", event_of(value)),)
            key, now_ms = event_of(value), 0
            if self.options.stateful:
                key, now_ms = b"k%d" % (crc32(key) % KEYS), int(self.scheduler.now_s * 1000)
            log.append(value, key=key, headers=headers, timestamp_ms=now_ms, producer=producer)
        if producer is None:
            self._upstream -= 1
        else:
            self._at(self.scheduler.now_s + item.open_s, partial(self._finish, number, producer))

    def _finish(self, number: int, producer: str) -> None:
        commit = self.options.items[number].end == "commit"
        self._log(number).mark(producer, commit=commit)
        self._upstream -= 1

    def _log(self, number: int) -> MemoryLog:
        topic = INPUTS[number % self.options.inputs]
        return self.broker.logs[(topic, self.options.items[number].partition)]

    # -- processes ------------------------------------------------------------------------

    def _start(self, instance: str, *, kept: bool = True) -> Process:
        self.counts["starts"] += 1
        process = Process(self, instance, self.counts["starts"], kept=kept)
        self.tell(f"{process.name} starts")
        self._processes.append(process)
        main = greenlet(process.main, self.scheduler.hub)
        self._greenlets[main] = process
        self._at(self.scheduler.now_s, main)
        self._at(self.scheduler.now_s, process.beat)
        return process

    def ended(self, process: Process) -> None:
        """Take note that a process is gone; the supervisor starts it again."""
        self.tell(f"{process.name} ends: {process.left}")
        self._processes.remove(process)
        self.count(f"left: {process.left.partition(':')[0]}")
        self._judge_exit(process)
        if self._leaving or not process.kept or self.scheduler.stopped:
            return
        if self.counts["starts"] > LIVES_MAX:
            self.judge.note("hang", "started again and again")
            return
        wait_s = RESTART_S * (1 if process.left in {"crashed", "drained"} else 8)
        name = process.instance
        if not self.options.stable_names:
            name = f"{name.partition('-')[0]}-{self.counts['starts']}"
        self._at(self.scheduler.now_s + wait_s * self._random.random(), lambda: self._again(name))

    def _again(self, name: str) -> None:
        if not self._leaving:
            self._start(name)

    def _judge_exit(self, process: Process) -> None:
        """Hold a reason to leave against what happened to the process."""
        reason = process.left
        if reason in {"drained", "crashed", "undefined"}:
            return
        explained = (
            (
                reason.startswith("DuplicateInstanceError")
                and (self.fence_causes or self.broker.expired)
            )
            or (reason.startswith("StopError") and process.lifecycle.stopping)
            or (reason.startswith("PreflightError") and self.brokers_away_until_s)
            or (reason.startswith("GroupMovedBackError") and self._moved_back)
        )
        if not explained:
            self.judge.note("undefined-exit", f"{process.name}: {reason}")

    # -- faults ---------------------------------------------------------------------------

    def strike(self, strike: Strike, process: Process) -> None:
        match strike.kind:
            case "brokers":
                self.brokers_away_until_s = self.scheduler.now_s + strike.seconds
            case "twin":
                self.fence_causes += 1
                self._start(process.instance, kept=False)
            case "disk":
                self.disks.harm(strike, process)
                if strike.seconds > 0.1:
                    raise CrashError
            case "compacted":
                compact(self.broker, self.kept.tombstones, self.scheduler.now_s)
            case "spare":
                self._start(f"s{self.counts['starts']}", kept=False)

    def move_clock_of_claims(self) -> None:
        """Let the store's clock jump, so that generations begin and end; no claim is over by that.

        Forward three times, by one time to live in all; then back and forth.
        """
        if self.claims is not None:
            forward = self._clock_moves < 3 or self._clock_moves % 2 == 0
            self.claims._kept.ahead_s += CLOCK_MOVE_S if forward else -CLOCK_MOVE_S
            self._clock_moves += 1

    def init_late(self, transactional_id: str) -> None:
        """Register a producer of whose epoch nobody will hear."""
        self.fence_causes += 1
        self.broker.init_producer(transactional_id)

    def deliver_late(self, kind: str, deliver: Callable[[], None], seconds: float) -> None:
        """Let a request arrive when its sender has long gone on."""
        self._late += 1
        self._at(self.scheduler.now_s + seconds, lambda: self._arrive(kind, deliver))

    def _arrive(self, kind: str, deliver: Callable[[], None]) -> None:
        self._late -= 1
        try:
            deliver()
            answer = "accepted"
        except (BatchAbortedError, ProducerDeadError) as error:
            answer = f"refused: {error}"
        self.tell(f"a late {kind} arrives, {answer}")
        self.count(f"late {kind} {answer.partition(':')[0]}")
