"""One campaign: faults one after another on a real cluster, and what came of them.

``run(plan)`` returns what the report needs. It is the nemesis that is written here; what strikes
is in the catalogue (striking/strikes.py), who judges is judge.py.
"""

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import KafkaException

from tests.fault.checking.judge import judge
from tests.fault.cluster import complaints
from tests.fault.feeding.ledger import Ledger
from tests.fault.members import Member
from tests.fault.plan import PROMISES, Fault, Plan, Step
from tests.fault.reporting import machine
from tests.fault.results import Counts, Judgement, Run, Strike
from tests.fault.scene import Scene, Stage
from tests.fault.watching.live import LiveHistory
from tests.kit.waiting import reaches

EXAMPLES_MAX = 20
BEHIND_MAX_S, BEHIND_S = 10.0, 2.0
"""How many seconds of records members may be behind when a step begins, and down to how many they
come if it was more: on a slow machine lag would grow from step to step, and be judged a hang."""
CATCH_UP_TIMEOUT_S = 60.0


def run(plan: Plan) -> Run:
    """Play a plan on a cluster of its own and judge what came out."""
    with Stage(plan, Path(tempfile.mkdtemp(prefix=f"hapax-fault-{plan.name}-"))) as stage:
        return _Campaign(plan, stage).run()


def _tell(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


class _Campaign:
    def __init__(self, plan: Plan, stage: Stage) -> None:
        self._plan = plan
        self._stage = stage
        self._rng = random.Random(plan.seed)
        self._found: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}
        self._run = Run(
            name=plan.name,
            engine=plan.engine,
            seed=plan.seed,
            commit=machine.commit(),
            began=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def run(self) -> Run:
        stage, plan = self._stage, self._plan
        _tell(f"{plan.name}, seed {plan.seed}: logs in {stage.folder}")
        if not stage.begin():
            self._violate("hang", "no output of some partition before the first fault")
        _tell(f"every partition moves after {time.time() - stage.began_s:.1f} s")
        for step in plan.steps(self._rng):
            if time.time() - stage.began_s > plan.seconds:
                break
            self._play(step)
        self._end()
        return self._run

    # -- one step -------------------------------------------------------------------------

    def _play(self, step: Step) -> None:
        self._catch_up()
        for scene in self._strike(step):
            self._run.strikes.append(self._conclude(scene, alone=len(step) == 1))
        time.sleep(self._rng.uniform(*self._plan.quiet_s))

    def _catch_up(self) -> None:
        """Write slower until the members keep pace again."""
        offsets, rate = self._stage.offsets, self._plan.rate
        if offsets.lag <= BEHIND_MAX_S * rate:
            return
        self._run.notes.append(f"written slower at a lag of {offsets.lag}")
        self._stage.feeder.pace(max(1, rate // 4))
        reaches(lambda: offsets.lag <= BEHIND_S * rate, CATCH_UP_TIMEOUT_S)
        self._stage.feeder.pace(rate)

    def _strike(self, step: Step) -> list[Scene]:
        """Strike, heal, bring back who left, wait until everything moves again."""
        stage = self._stage
        if any(fault.whom == "broker" for fault in step):
            stage.cluster.restore()
            if not stage.cluster.await_in_step():
                self._violate("hang", "brokers do not come in step again")
        scenes = [Scene(stage, fault, random.Random(self._rng.random())) for fault in step]
        threads = [threading.Thread(target=self._act, args=(scene,)) for scene in scenes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stage.proxy.clear()
        self._send_home()
        self._bring_back(step)
        healed_s = max(scene.healed_s or 0.0 for scene in scenes)
        bound_s = self._plan.recovery_s
        if stage.progress.await_recovery(healed_s, bound_s) is None:
            names = " with ".join(fault.name for fault in step)
            self._violate("hang", f"no output of some partition {bound_s:.0f} s after: {names}")
            for member in stage.members:  # one that hangs would spoil every step behind this
                self._run.notes.append(f"{member.instance}, then restarted: {member.last_words()}")
                if member.running:
                    member.restart()
        self._bring_back(step)
        return scenes

    def _act(self, scene: Scene) -> None:
        try:
            scene.fault.strike(scene)
        except Exception as error:  # noqa: BLE001 - a control may break a strike; it is told
            text = str(error).partition("\n")[0]
            scene.note(f"{type(error).__name__}: {text[:200]}")
        scene.healed_s = scene.healed_s or time.time()

    def _bring_back(self, step: Step) -> None:
        for member in self._stage.members:
            if member.frozen:
                member.thaw()
            code = member.surprise()
            if code is not None:
                names = " with ".join(fault.name for fault in step)
                self._violate("undefined-exit", f"{member.instance} left with {code} at: {names}")
                _tell(member.last_words())
            if not member.running:
                member.start()

    def _send_home(self) -> None:
        """End guests that a broken strike has left behind: they hold partitions of others."""
        for guest in self._stage.guests:
            if guest.running:
                guest.thaw()
                self._stop(guest)

    def _stop(self, member: Member) -> int:
        """SIGTERM; return the exit code. One that does not leave is a hang, and is killed."""
        try:
            return member.terminate()
        except subprocess.TimeoutExpired:
            self._violate("hang", f"{member.instance} does not stop: {member.last_words()}")
            member.kill()
            return 0

    def _conclude(self, scene: Scene, *, alone: bool) -> Strike:
        stage, fault = self._stage, scene.fault
        seen_s = stage.progress.recovered_s(scene.since_s)
        recovery_s = None if seen_s is None else round(seen_s - scene.since_s, 2)
        until_s = seen_s or time.time()
        for text in scene.broken:
            self._violate("row-demand", text)
        fences = scene.events("in_doubt_fenced")
        notes = [*scene.notes, *([f"doubt fences {fences}"] if fences else [])]
        promised_s = self._promised_s(fault) if alone else None
        strike = Strike(
            rows=fault.rows,
            fault=fault.name,
            target=scene.target,
            struck=scene.struck,
            at_s=round(scene.began_s - stage.began_s, 2),
            healed_s=round((scene.healed_s or scene.began_s) - stage.began_s, 2),
            recovery_from=scene.since,
            recovery_s=recovery_s,
            kafka_s=scene.kafka_s and round(scene.kafka_s, 2),
            stall_s=round(stage.offsets.longest_stall_s(scene.began_s, until_s), 2),
            promise="" if promised_s is None else f"{fault.promise}, {self._plan.membership}",
            promised_s=promised_s,
            note="; ".join(notes),
        )
        _tell(
            f"{'/'.join(fault.rows):10} {fault.name} ({scene.target}) struck {scene.struck}, "
            f"recovered {recovery_s} s after {scene.since}, "
            f"{f'Kafka itself {strike.kafka_s} s, ' if strike.kafka_s else ''}"
            f"stall {strike.stall_s} s, lag {stage.offsets.lag} {strike.note}"
            f"{f' LATE: promised {promised_s:g} s' if strike.late else ''}"
        )
        return strike

    def _promised_s(self, fault: Fault) -> float | None:
        """Return how soon all must go on; brokers that are missed late promise nothing."""
        if fault.promise == "broker" and not self._plan.brokers:
            return None
        return PROMISES.get(fault.promise, {}).get(self._plan.membership)

    # -- the end --------------------------------------------------------------------------

    def _end(self) -> None:
        stage, run = self._stage, self._run
        stage.cluster.restore()
        missing_s = (self._plan.records - stage.feeder.written) / self._plan.rate
        reaches(lambda: stage.feeder.written >= self._plan.records, 2 * missing_s)
        struck_s = time.time() - stage.began_s
        ledger = stage.feeder.stop()
        if not reaches(lambda: self._lag() == 0, self._plan.settle_s):
            self._violate("hang", f"lag {stage.offsets.lag} does not go to 0")
        else:
            _tell(f"lag 0 {time.time() - stage.began_s - struck_s:.1f} s after the last record")
        self._await_reader()
        for member in stage.members:
            if member.running:
                code = self._stop(member)
                if code:
                    self._violate("undefined-exit", f"{member.instance}: SIGTERM ended in {code}")
        run.samples = list(stage.offsets.samples)
        live = stage.reader.stop()
        run.notes.append(f"load of the machine {os.getloadavg()[1]:.1f}")
        run.seconds = round(time.time() - stage.began_s, 1)
        run.judgement = self._judge(ledger, live)
        self._count(run.judgement.counts)
        for name, count in self._found.items():
            run.judgement.violations[name] = run.judgement.violations.get(name, 0) + count
            run.judgement.examples.setdefault(name, []).extend(self._examples[name])
        _tell(f"{len(run.strikes)} faults, {run.judgement.counts}")
        _tell(f"violations {run.judgement.anomalies}")

    def _judge(self, ledger: Ledger, live: LiveHistory) -> Judgement:
        """Read back and decide; a coordinator that answers for no group is a hang of its own.

        Seen once behind "all brokers killed": NOT_COORDINATOR for a minute, with members that had
        committed everything and left. What its log says is what is known of it.
        """
        stage = self._stage
        try:
            return judge(stage.topics, ledger, live)
        except KafkaException as error:
            broker = stage.cluster.coordinator("offsets", stage.topics.app)
            self._violate("hang", f"{broker.name} does not let the run be judged: {error}")
            _tell(complaints(broker))
            return Judgement()

    def _lag(self) -> int:
        return self._stage.offsets.fresh_lag()

    def _await_reader(self) -> None:
        """Wait until the live reader sees nothing new."""
        last = -1
        while (done := self._stage.reader.done) != last:
            last = done
            time.sleep(1.0)

    def _count(self, counts: Counts) -> None:
        members = self._stage.everybody
        told: Counter[str] = Counter()
        for member in members:
            told += member.read_log()
        counts.committed = told["transaction_committed"]
        counts.aborted = told["batch_aborted"]
        counts.unknown = told["producer_died"] - told["fenced"]
        counts.rebalances = sum(
            told[f"partitions_{kind}"] for kind in ("assigned", "revoked", "lost")
        )
        counts.fences = told["fenced"] + told["member_fenced"]
        counts.doubt_fences = told["in_doubt_fenced"]
        counts.kills = sum(member.kills for member in members)
        counts.starts = sum(member.starts for member in members)

    def _violate(self, name: str, text: str) -> None:
        self._found[name] += 1
        examples = self._examples.setdefault(name, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(text)
        _tell(f"VIOLATION {name}: {text}")
