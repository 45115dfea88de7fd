"""Strikes at a Spark application: at its tasks, its JVM, its driver (SP)."""

import signal
import time

from tests.fault.members import Member
from tests.fault.scene import Scene
from tests.kit.waiting import await_

JVM_LOST = (1, 3)
"""What a driver leaves with when its JVM is gone: at work, and when it was about to start."""
LEAVES_S = 60.0
TASK_S = 30.0
START_S = 90.0


def _driver(scene: Scene) -> Member:
    victim = scene.rng.choice([each for each in scene.stage.members if each.is_driver])
    scene.target = victim.instance
    await_(lambda: bool(victim.driver.part("worker")), TASK_S, victim.last_words)
    return victim


def kill_task(scene: Scene) -> None:
    victim = _driver(scene)
    scene.mark("kill of a task")
    scene.hit(int(victim.driver.strike_one(signal.SIGKILL, scene.rng) is not None))


def freeze_task(scene: Scene, seconds: float) -> None:
    """Freeze one process that runs tasks, past its transaction's timeout."""
    victim = _driver(scene)
    struck = victim.driver.strike_one(signal.SIGSTOP, scene.rng)
    scene.hit(int(struck is not None))
    time.sleep(seconds)
    victim.thaw()
    scene.thawed()


def kill_jvm(scene: Scene) -> None:
    """Kill Spark itself: the driver leaves, and is started again."""
    kill_jvm_of(scene, _driver(scene))


def kill_jvm_of(scene: Scene, victim: Member) -> None:
    """Kill the JVM of this driver, which must leave with a code that says so; start it again."""
    scene.mark("kill of the JVM, driver at once")
    victim.away = True
    scene.hit(victim.driver.strike(signal.SIGKILL, "jvm"))
    code = victim.process.process.wait(LEAVES_S)
    scene.demand(code in JVM_LOST, f"the driver left with {code} without its JVM")
    victim.start()


def kill_driver(scene: Scene) -> None:
    """Kill the driver alone: JVM and tasks outlive it for a moment."""
    victim = _driver(scene)
    scene.mark("kill of the driver, driver at once")
    victim.away = True
    scene.hit(victim.driver.strike(signal.SIGKILL, "driver"))
    victim.process.process.wait()
    victim.kills += 1
    victim.start()


def kill_application(scene: Scene) -> None:
    """Kill driver, JVM and tasks at once, as a container dies."""
    victim = _driver(scene)
    scene.mark("kill of the application, started at once")
    victim.restart()
    scene.hit()


def freeze_driver(scene: Scene, seconds: float) -> None:
    """Freeze the driver past its session; its tasks go on with what they have."""
    victim = _driver(scene)
    victim.frozen = True
    scene.mark("freeze")
    scene.hit(victim.driver.strike(signal.SIGSTOP, "driver"))
    time.sleep(seconds)
    victim.thaw()
    scene.thawed()


def hand_over(scene: Scene) -> None:
    """SIGTERM to a driver: the others take over; it comes back when they have."""
    victim = _driver(scene)
    scene.mark("SIGTERM, to another instance")
    code = victim.terminate(LEAVES_S)
    scene.hit()
    scene.demand(code == 0, f"SIGTERM ended in {code}")
    if len(scene.stage.members) > 1:
        scene.await_recovery()
    victim.start()


def second_driver(scene: Scene, seconds: float) -> None:
    """Let another driver of the same pipeline join for a while."""
    guest = scene.stage.guest("spark")
    scene.target = guest.instance
    guest.start()
    scene.hit()
    time.sleep(seconds)
    scene.mark("leave of the second driver")
    code = guest.terminate(LEAVES_S)
    scene.demand(code in {0, -15}, f"SIGTERM ended in {code}")
    scene.heal()


def hand_over_engines(scene: Scene) -> None:
    """From the drivers to workers and back, under load."""
    stage = scene.stage
    drivers = [each for each in stage.members if each.is_driver]
    guests = [stage.guest() for _ in drivers]
    for guest in guests:
        guest.start()
    scene.mark("SIGTERM of all drivers")
    for driver in drivers:
        code = driver.terminate(LEAVES_S)
        scene.hit()
        scene.demand(code == 0, f"SIGTERM of {driver.instance} ended in {code}")
    scene.note(f"to workers within {scene.await_recovery() or 99:.1f} s")
    joined = {driver: driver.read_log()["partitions_assigned"] for driver in drivers}
    for driver in drivers:
        driver.start()
    for driver, before in joined.items():
        _await_join(driver, before)
    scene.mark("SIGTERM of the workers")
    for guest in guests:
        code = guest.terminate(LEAVES_S)
        scene.hit()
        scene.demand(code == 0, f"SIGTERM of {guest.instance} ended in {code}")
    scene.target = "drivers, workers and back"
    scene.heal()


def _await_join(driver: Member, before: int) -> None:
    """Wait until a driver has heard from the group; it may have got nothing yet."""
    await_(lambda: driver.read_log()["partitions_assigned"] > before, START_S, driver.last_words)
