"""Strikes at a Spark cluster: executors, worker daemons, the master, the ways between (SP)."""

import signal
import time

import psutil  # type: ignore[import-untyped] # it carries no types

from hapax.sandbox.servers import SparkDaemon
from tests.fault.members import Member
from tests.fault.scene import Scene
from tests.fault.striking.strikes_spark import LEAVES_S, kill_jvm_of
from tests.kit.spark_process import executors, runs_tasks, send, with_children
from tests.kit.topics import ends
from tests.kit.waiting import await_, reaches

START_S = 180.0
TRIES, CATCH_S, STANDS_S = 40, 0.3, 2.0
REFUSED_S = 30.0
GROWS_S = 40.0
"""How long a driver may take to use cores that came later: it looks every 10 s."""


def _driver(scene: Scene) -> Member:
    (victim,) = scene.stage.members
    scene.target = victim.instance
    return victim


def _daemons(scene: Scene) -> list[SparkDaemon]:
    """Return the workers that run from the beginning."""
    return scene.stage.sandbox.spark.workers[: scene.stage.plan.spark_workers]


def _at_work(scene: Scene, *daemons: SparkDaemon) -> list[psutil.Process]:
    """Return the executors of these daemons, once each has one that was given a task."""
    chosen = daemons or tuple(_daemons(scene))

    def found() -> list[psutil.Process]:
        return [each for each in executors(one.pid for one in chosen) if runs_tasks(each)]

    await_(lambda: len(found()) >= len(chosen), START_S, scene.stage.members[0].last_words)
    return found()


def kill_executor(scene: Scene) -> None:
    """SIGKILL one executor; its daemon starts another."""
    victim = scene.rng.choice(_at_work(scene))
    scene.target = "an executor"
    scene.mark("kill of an executor")
    scene.hit(send(victim, signal.SIGKILL))


def kill_all_executors(scene: Scene) -> None:
    victims = _at_work(scene)
    scene.target = "all executors"
    scene.mark("kill of all executors")
    scene.hit(sum(send(each, signal.SIGKILL) for each in victims))


def kill_daemon(scene: Scene, seconds: float) -> None:
    """SIGKILL a worker daemon, which its executor notices; it is started again."""
    victim = scene.rng.choice(_daemons(scene))
    _at_work(scene)
    scene.target = victim.name
    scene.mark("kill of a worker daemon")
    victim.kill()
    scene.hit()
    time.sleep(seconds)
    victim.start()
    scene.heal()


def kill_master(scene: Scene, seconds: float) -> None:
    """SIGKILL the master, and an executor that nobody can replace until it is back."""
    spark = scene.stage.sandbox.spark
    victim = scene.rng.choice(_at_work(scene))
    scene.target = spark.master.name
    scene.mark("kill of the master and of an executor")
    spark.master.kill()
    scene.hit(1 + send(victim, signal.SIGKILL))
    time.sleep(seconds)
    spark.master.start()
    scene.heal()
    spark.await_ready()


def kill_jvm(scene: Scene) -> None:
    """Kill the driver's JVM: the driver leaves, executors outlive it for a moment."""
    _at_work(scene)
    kill_jvm_of(scene, _driver(scene))


def other_driver(scene: Scene) -> None:
    """Kill the driver and start another at once, while JVM and executors of the first still run."""
    _at_work(scene)
    victim, guest = _driver(scene), scene.stage.guest("spark")
    scene.mark("kill of the driver, another one at once")
    victim.away = True
    scene.hit(victim.driver.strike(signal.SIGKILL, "driver"))
    victim.process.process.wait()
    victim.kills += 1
    guest.start()
    scene.note(f"another driver goes on after {scene.await_recovery() or 99:.1f} s")
    code = guest.terminate(LEAVES_S)
    scene.demand(code == 0, f"SIGTERM of {guest.instance} ended in {code}")
    victim.driver.await_gone()  # it has the ports of its successor
    victim.start()


def freeze_executor(scene: Scene, seconds: float) -> None:
    """Freeze an executor inside a transaction, for longer than that may last, and thaw it.

    Its commit must be refused; at the latest, when another task has the lane, for that one's sake.
    """
    victim = scene.rng.choice(_at_work(scene))
    scene.target = "an executor"
    frozen = _freeze_inside(scene, victim)
    scene.hit(bool(frozen))
    time.sleep(seconds)
    given_up = scene.events("task_lost")
    for each in frozen:
        send(each, signal.SIGCONT)
    scene.thawed()
    if frozen:
        reaches(lambda: _refusals(scene) or scene.events("task_lost"), REFUSED_S)
        scene.note(f"given up meanwhile {given_up}, refused after it {_refusals(scene)}")
        scene.demand(given_up or _refusals(scene), "a commit past its transaction was not refused")


def _refusals(scene: Scene) -> int:
    """Return how many tasks said that what they had open was not theirs any more."""
    return sum(map(scene.events, ("producer_died", "batch_aborted", "in_doubt_fenced")))


def _freeze_inside(scene: Scene, victim: psutil.Process) -> list[psutil.Process]:
    """Freeze an executor that has a transaction open; nothing when no try finds one."""
    for _ in range(TRIES):
        reaches(lambda: _open(scene), CATCH_S)
        frozen = with_children(victim)
        for each in frozen:
            send(each, signal.SIGSTOP)
        before = _open(scene)
        if before:
            time.sleep(STANDS_S)
        if before & _open(scene):  # another executor's would have moved on
            return frozen
        for each in frozen:
            send(each, signal.SIGCONT)
    return []


def _open(scene: Scene) -> set[tuple[int, int]]:
    """Return partition and last stable offset wherever a transaction is open in the outputs."""
    servers, topic = scene.stage.sandbox.bootstrap_servers, scene.stage.topics.outputs[0]
    highs = ends(servers, topic, "read_uncommitted")
    return {(number, at) for number, at in ends(servers, topic).items() if at < highs[number]}


def cut_executors(scene: Scene, seconds: float) -> None:
    """Break all connections between driver and executors, and refuse new ones for a while."""
    _at_work(scene)
    door = scene.stage.door
    scene.target = "driver and executors"
    scene.hit(door.cut())
    time.sleep(seconds)
    door.open()
    scene.heal()
    scene.mark("connections again")


def late_executor(scene: Scene) -> None:
    """Start one more worker: its executor gets ranges; then kill it with all it has."""
    driver, late = _driver(scene), scene.stage.sandbox.spark.workers[-1]
    before = _lanes(driver)
    scene.target = late.name
    late.start()
    (executor,) = _at_work(scene, late)
    scene.hit()
    wanted = scene.stage.plan.spark_workers + 1
    sticky = scene.stage.plan.membership == "kip848"  # whose partitions keep their lanes
    grown = reaches(lambda: sticky or _lanes(driver) >= wanted, GROWS_S)
    scene.demand(grown, f"{_lanes(driver)} lanes on {wanted} executors")
    scene.note(f"lanes {before} to {_lanes(driver)}")
    scene.mark("kill of the late worker and its executor")
    late.kill()
    scene.hit(send(executor, signal.SIGKILL))


def _lanes(driver: Member) -> int:
    """Return how many lanes the driver has partitions for."""
    told = driver.process.lines("lanes_assigned")
    lanes = told[-1]["lanes"] if told else {}
    assert isinstance(lanes, dict)
    return len(lanes)
