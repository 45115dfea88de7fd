import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hapax.demo import application as application_module
from hapax.demo.application import Application
from hapax.demo.child import DemoError
from hapax.demo.processes import LiveProcess, of_session, parse, python_workers, send
from hapax.sandbox.watchdog import ChildWatchdog
from tests.kit.waiting import await_

Started = Callable[[str], tuple[Application, int]]

POOL = b"python\0-m\0pyspark.daemon\0"
# A driver with a child, both in one session; {leave} is what SIGTERM makes of the child.
FAMILY = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
def leave(*_):
    {leave}
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", child.pid, flush=True)
while True:
    signal.pause()
"""
WITH_CHILD, WITHOUT_CHILD = "child.kill(); child.wait()", "pass"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def stat(parent: int, session: int, state: str = "S", name: str = "java") -> bytes:
    return f"1 ({name}) {state} {parent} 7 {session} 0 -1 4194304".encode()


def fake_proc(folder: Path, processes: dict[int, tuple[bytes, bytes]]) -> Path:
    for pid, (line, command) in processes.items():
        (folder / str(pid)).mkdir()
        (folder / str(pid) / "stat").write_bytes(line)
        (folder / str(pid) / "cmdline").write_bytes(command)
    return folder


@pytest.mark.parametrize("name", ["java", "a b", "x) S 1 1 (y", ")"])
def test_a_name_with_blanks_and_brackets_does_not_shift_the_fields(name):
    assert parse(40, stat(parent=9, session=8, name=name)) == LiveProcess(40, 9, 8, "S")


def test_a_session_has_its_living_processes_and_no_others(tmp_path):
    proc = fake_proc(
        tmp_path,
        {
            5: (stat(parent=1, session=5), b"python\0"),
            6: (stat(parent=5, session=5, state="T"), b"java\0"),
            7: (stat(parent=6, session=5, state="Z"), b""),
            8: (stat(parent=1, session=8), b"java\0"),
        },
    )
    (proc / "9").mkdir()  # it ended since the folder was listed
    (proc / "uptime").touch()
    assert [(one.pid, one.command) for one in of_session(5, proc)] == [
        (5, b"python\0"),
        (6, b"java\0"),
    ]


def test_python_workers_are_those_that_the_pool_has_forked():
    family = [
        LiveProcess(5, 1, 5, "S", b"python\0-m\0service\0run\0"),
        LiveProcess(6, 5, 5, "S", b"java\0org.apache.spark.deploy.SparkSubmit\0"),
        LiveProcess(7, 6, 5, "S", POOL),
        LiveProcess(8, 7, 5, "S", POOL),
        LiveProcess(9, 7, 5, "R", POOL),
    ]
    assert python_workers(family) == [8, 9]


@pytest.fixture
def started(tmp_path):
    watchdog = ChildWatchdog()
    applications: list[Application] = []

    def start(leave: str) -> tuple[Application, int]:
        code = FAMILY.format(leave=leave)
        application = Application("family", ["-c", code], {}, tmp_path, watchdog)
        applications.append(application)
        application.start()
        while not (told := re.search(r"ready (\d+)\n", application.log.read_text())):
            application.check()
        return application, int(told[1])

    yield start
    for application in applications:
        application.end()
    watchdog.close()


def alive(pid: int, session: int) -> bool:
    return pid in {process.pid for process in of_session(session)}


def states(application: Application) -> set[str]:
    return {process.state for process in of_session(driver(application))}


def driver(application: Application) -> int:
    return application._living().pid


def test_a_kill_ends_the_driver_and_all_that_it_started(started):
    application, child = started(WITHOUT_CHILD)
    session = driver(application)
    assert alive(child, session)
    assert application.kill() is True
    assert of_session(session) == []


def test_a_kill_of_what_ended_before_is_not_taken_for_ours(started):
    application, _ = started(WITHOUT_CHILD)
    send(driver(application), signal.SIGTERM)
    application._living().wait()
    assert application.kill() is False
    assert of_session(driver(application)) == []


def test_frozen_is_everything_and_a_thaw_lets_it_leave_in_order(started):
    application, _ = started(WITH_CHILD)
    application.freeze()
    await_(lambda: states(application) == {"T"}, 30, lambda: str(states(application)))
    application.thaw()
    assert application.terminate() == 0


def test_who_leaves_a_child_behind_is_told_and_the_child_is_ended(started, monkeypatch):
    monkeypatch.setattr(application_module, "_GONE_TIMEOUT_S", 0.05)
    application, child = started(WITHOUT_CHILD)
    session = driver(application)
    with pytest.raises(DemoError, match=r"family left, but .* live on: .*signal\.pause"):
        application.terminate()
    assert alive(child, session)
    application.end()
    assert of_session(session) == []


def test_what_is_frozen_ends_with_the_demo_however_the_demo_ends(started):
    application, child = started(WITHOUT_CHILD)
    session = driver(application)
    application.freeze()
    application._watchdog.close()
    application._living().wait()
    while alive(child, session):
        pass
    assert of_session(session) == []
    application._session = None  # its watchdog has ended it and is gone
