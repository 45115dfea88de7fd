"""What one strike sees and says: the stage it strikes on, and how it went."""

import json
import random
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from hapax.sandbox import Sandbox
from hapax.sandbox.processes import LOOPBACK, ManagedProcess, Ports
from hapax.sandbox.servers import executor_properties
from tests.fault.checking.judge import Topics
from tests.fault.cluster import Cluster
from tests.fault.feeding.feed import Feeder
from tests.fault.members import IN_PYTHON, PROXIED, Member
from tests.fault.plan import Fault, Plan
from tests.fault.watching.live import LiveReader
from tests.fault.watching.monitor import Offsets, Progress
from tests.kit.faults import Rule
from tests.kit.forwarder import Forwarder
from tests.kit.managed_process import WorkerProcess
from tests.kit.proxy import FaultProxy
from tests.kit.spark_process import SparkProcess
from tests.kit.waiting import reaches

# -- Everything that a campaign needs, started in order and ended in order.
#
# Three brokers behind a proxy, Redis, topics of its own, a feeder, a live reader, the members of a
# group, and whoever watches them.


# The ports of a Spark driver that its executors come to, so that the way can be cut.

ADDRESS = "127.0.0.2"
"""Where executors are told that the driver is; it listens on the same ports of 127.0.0.1."""


class DriverDoor:
    """Passes executors on to a driver that has been given ``properties``; one driver at a time."""

    def __init__(self) -> None:
        self._exits = ExitStack()
        self._ports: list[int] = []
        self._doors: list[Forwarder] = []

    def __enter__(self) -> Self:
        ports = Ports()
        self._exits.callback(ports.close)
        self._ports = [ports.reserve(), ports.reserve()]
        self._doors = [
            self._exits.enter_context(Forwarder(port, ADDRESS, port)) for port in self._ports
        ]
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    @property
    def properties(self) -> dict[str, str]:
        calls, blocks = self._ports
        return {
            "spark.driver.host": ADDRESS,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.port": str(calls),
            "spark.driver.blockManager.port": str(blocks),
            # Behind another port nobody would find it.
            "spark.port.maxRetries": "1",
        }

    def cut(self) -> int:
        """Break all connections and refuse new ones; return how many broke."""
        return sum(door.lead_to(0) for door in self._doors)

    def open(self) -> None:
        for door, port in zip(self._doors, self._ports, strict=True):
            door.lead_to(port)


class Stage:
    """A campaign's world: ``with Stage(plan, folder) as stage``."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self._exits = ExitStack()
        self.everybody: list[Member] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._exits.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.door = DriverDoor()
        spark_workers = self.plan.spark_workers and self.plan.spark_workers + 1
        if spark_workers:
            self._exits.enter_context(self.door)
        self.sandbox = self._exits.enter_context(
            Sandbox(
                nodes=3, proxied=True, properties=self.plan.brokers, spark_workers=spark_workers
            )
        )
        if spark_workers:
            self.sandbox.spark.workers[-1].kill()  # it comes later
        self.cluster = Cluster(self.sandbox)
        self.proxy = self._exits.enter_context(FaultProxy.before(self.sandbox))
        self.topics = self._create_topics()
        if self.plan.membership == "kip848":  # brokers before 4.0 keep no settings of groups
            timeouts = {"consumer.session.timeout.ms": "6000"}
            timeouts["consumer.heartbeat.interval.ms"] = "1000"
            self.cluster.configure_group(self.topics.app, timeouts)
        bootstrap, plan = self.sandbox.bootstrap_servers, self.plan
        self.feeder = Feeder(
            bootstrap,
            self.topics.source,
            self.folder,
            run=f"{plan.name}-{plan.seed}",
            partitions=plan.partitions,
            rate=plan.rate,
            seed=plan.seed,
        )
        self._exits.callback(self.feeder.close)
        self.reader = LiveReader(
            bootstrap,
            [*self.topics.outputs, self.topics.dead],
            self.folder,
            source=self.topics.source,
            partitions=plan.partitions,
        )
        self._exits.callback(self.reader.close)
        self.members = [self.member(f"w-{at}", kind) for at, kind in enumerate(plan.kinds)]

    def _create_topics(self) -> Topics:
        app = f"{self.plan.name}-{self.plan.seed}-{uuid.uuid4().hex[:6]}"
        return Topics.create(self.sandbox, app, self.plan.partitions, headers=True)

    # -- members --------------------------------------------------------------------------

    def member(self, instance: str, kind: str = "worker") -> Member:
        """Return a member that is not started yet, and is ended with the stage."""
        environment = self._environment()
        if instance == PROXIED and kind == "worker":
            environment["HAPAX_KAFKA__BOOTSTRAP_SERVERS"] = self.proxy.bootstrap
        if instance == IN_PYTHON and kind == "worker":
            environment["HAPAX_FAST"] = "off"
        log = self.folder / f"{instance}.log"
        if kind == "spark":
            if self.plan.spark_workers:
                environment["HAPAX_SPARK__PROPERTIES"] = self._properties(instance)
            member = Member(SparkProcess(environment, instance, log), log)
        else:
            member = Member(WorkerProcess(environment, instance, log), log)
        self._exits.callback(member.close)
        self.everybody.append(member)
        return member

    def _properties(self, instance: str) -> str:
        """Return Spark's properties of a driver; the first one's executors come by the door."""
        door = self.door.properties if instance == PROXIED else {}
        return json.dumps(executor_properties() | door)

    @property
    def guests(self) -> list[Member]:
        """Return members that strikes have brought in, gone or not."""
        return self.everybody[len(self.members) :]

    def guest(self, kind: str = "worker") -> Member:
        """Return a further member, of a name that nobody had."""
        return self.member(f"g-{len(self.everybody)}", kind)

    def _environment(self) -> dict[str, str]:
        return (
            self.topics.environment(
                **self.sandbox.environment(), HAPAX_TRANSFORM="tests.fault.business:split"
            )
            | self.plan.settings
        )

    # -- beginning ------------------------------------------------------------------------

    def begin(self) -> bool:
        """Start feeder, members and watchers; return whether every partition showed an output."""
        self.began_s = time.time()
        self.reader.start()
        self.feeder.start()
        for member in self.members:
            member.start()
        self.progress = Progress(self.reader)
        self.offsets = Offsets(
            self.sandbox.bootstrap_servers,
            self.topics.app,
            [broker.port for broker in self.cluster.brokers],
            self.cluster.places([self.topics.source]),
            self.cluster.places(self.topics.outputs),
            (lambda: self.feeder.written, lambda: self.reader.done),
        )
        self.progress.start()
        self._exits.callback(self.progress.close)
        self.offsets.start()
        self._exits.callback(self.offsets.close)
        return reaches(self.progress.all_seen, self.plan.start_s)


# -- What strikes see of it ----------------------------------------------------------------


class Scene:
    """One strike, from its beginning until all is well again.

    struck  how often the fault really struck
    since_s the moment from which recovery is measured (wall clock), ``since`` in words
    kafka_s from the strike until all partitions had a leader again; None: not measured
    broken  what the row demands beyond the invariants, and did not get
    """

    def __init__(self, stage: Stage, fault: Fault, rng: random.Random) -> None:
        self.stage = stage
        self.fault = fault
        self.rng = rng
        self.target = ""
        self.struck = 0
        self.began_s = time.time()
        self.since_s = self.began_s
        self.since = "strike"
        self.kafka_s: float | None = None
        self.healed_s: float | None = None
        self.notes: list[str] = []
        self.broken: list[str] = []
        self._before = {each: each.read_log().copy() for each in stage.members}

    # -- whom it strikes ------------------------------------------------------------------

    @property
    def proxied(self) -> Member:
        """The member whose requests go through the proxy."""
        return self._aim(self.stage.members[0])

    @property
    def anybody(self) -> Member:
        return self._aim(self.rng.choice(self.stage.members))

    @property
    def worker(self) -> Member:
        """Some member that runs batches itself: a driver of Spark leaves that to its tasks."""
        return self._aim(self.rng.choice([one for one in self.stage.members if not one.is_driver]))

    def _aim(self, member: Member) -> Member:
        self.target = member.instance
        return member

    def await_hit(self, rule: Rule) -> None:
        """Wait for the request that a rule is to harm; raise when none comes."""
        assert rule.hit.wait(self.stage.plan.patience_s), f"{rule} has not struck"

    def await_answered(self, rule: Rule) -> None:
        """Wait until the broker has answered such a request; raise when none comes."""
        assert rule.answered.wait(self.stage.plan.patience_s), f"{rule} has no answer"

    def arm(self, rule: Rule) -> Rule:
        """Arm a rule of the proxy; all are disarmed at the end of the step."""
        return self.stage.proxy.add(rule)

    # -- what it did ----------------------------------------------------------------------

    def hit(self, times: int = 1) -> None:
        self.struck += times

    def mark(self, since: str) -> None:
        """Say that recovery is measured from now."""
        self.since_s = time.time()
        self.since = since

    def heal(self) -> None:
        self.healed_s = time.time()

    def freeze(self, process: ManagedProcess, seconds: float) -> None:
        process.pause()
        self.hit()
        time.sleep(seconds)
        process.resume()
        self.thawed()

    def thawed(self) -> None:
        self.heal()
        self.mark("thaw")

    def note(self, text: str) -> None:
        self.notes.append(text)

    def demand(self, held: object, what: str) -> None:
        """Say what the row asks for beyond the invariants, and whether it was so."""
        if not held:
            self.broken.append(f"{self.fault.name}: {what}")

    # -- what came of it ------------------------------------------------------------------

    def await_recovery(self) -> float | None:
        """Wait until all partitions go on; return how long it took since the mark."""
        seen_s = self.stage.progress.await_recovery(self.since_s, self.stage.plan.recovery_s)
        return None if seen_s is None else seen_s - self.since_s

    def events(self, name: str) -> int:
        return sum(each.read_log()[name] - before[name] for each, before in self._before.items())
