import re
import signal
import sys
from pathlib import Path

import pytest

from hapax.demo import story
from hapax.demo.story import SparkApplication, of_session, python_workers, send
from hapax.sandbox.watchdog import ChildWatchdog
from tests.kit.waiting import await_

POOL = b"python\0-m\0pyspark.daemon\0"
# A driver with a child, both in one session; {leave} is what SIGTERM makes of it. SIGTERM is waited
# for: a handler that is due when pause() is called would not run before the next signal.
FAMILY = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("ready", child.pid, flush=True)
signal.sigwait([signal.SIGTERM])
{leave}
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


def test_a_session_has_its_living_processes_and_no_others(tmp_path):
    proc = fake_proc(
        tmp_path,
        {
            5: (stat(parent=1, session=5), b"python\0"),
            6: (stat(parent=5, session=5, state="T", name="x) S 1 1 (y"), b"java\0"),
            7: (stat(parent=6, session=5, state="Z"), b""),
            8: (stat(parent=1, session=8, name="a b"), b"java\0"),
            10: (stat(parent=6, session=5, name=")"), b"sh\0"),
        },
    )
    (proc / "9").mkdir()  # it ended since the folder was listed
    (proc / "uptime").touch()
    assert of_session(5, proc) == {5: (1, b"python\0"), 6: (5, b"java\0"), 10: (6, b"sh\0")}


def test_python_workers_are_those_that_the_pool_has_forked():
    driver, java = b"python\0-m\0service\0run\0", b"java\0org.apache.spark.deploy.SparkSubmit\0"
    family = {5: (1, driver), 6: (5, java), 7: (6, POOL), 8: (7, POOL), 9: (7, POOL)}
    assert python_workers(family) == [8, 9]


@pytest.fixture
def started(tmp_path):
    watchdog = ChildWatchdog()
    applications: list[SparkApplication] = []

    def start(leave: str) -> tuple[SparkApplication, int]:
        code = FAMILY.format(leave=leave)
        command = [sys.executable, "-c", code]
        application = SparkApplication("family", command, tmp_path / "log", watchdog)
        applications.append(application)
        application.start()
        while not (told := re.search(r"ready (\d+)\n", application.log.read_text())):
            assert application.running, application.last_words()
        return application, int(told[1])

    yield start
    for application in applications:
        application.kill()
    watchdog.close()


def alive(pid: int, session: int) -> bool:
    return pid in of_session(session)


def states(session: int) -> set[bytes]:
    stats = [Path("/proc", str(pid), "stat").read_bytes() for pid in of_session(session)]
    return {line.rpartition(b") ")[2].split()[0] for line in stats}


@pytest.mark.parametrize("ended", [False, True])
def test_a_kill_ends_the_driver_and_all_it_started_and_is_ours_if_it_had_not_ended(started, ended):
    application, child = started(WITHOUT_CHILD)
    session = application.pid
    assert alive(child, session)
    if ended:
        send(session, signal.SIGTERM)
        assert application.wait() == 0
    assert application.kill() is not ended
    assert of_session(session) == {}


def test_frozen_is_everything_and_a_thaw_lets_it_leave_in_order(started):
    application, _ = started(WITH_CHILD)
    session = application.pid
    application.pause()
    await_(lambda: states(session) == {b"T"}, 30, lambda: str(states(session)))
    application.resume()
    assert application.terminate() == 0
    assert application.left_behind() == []


def test_what_a_driver_leaves_behind_is_named_and_can_be_ended(started, monkeypatch):
    monkeypatch.setattr(story, "_GONE_TIMEOUT_S", 0.05)
    application, child = started(WITHOUT_CHILD)
    session = application.pid
    assert application.terminate() == 0
    (left,) = application.left_behind()
    assert "signal.pause" in left
    assert alive(child, session)
    application.kill()
    assert of_session(session) == {}


def test_what_is_frozen_ends_with_the_demo_however_the_demo_ends(started):
    application, child = started(WITHOUT_CHILD)
    session = application.pid
    application.pause()
    application._watchdog.close()
    await_(lambda: not alive(child, session), 30, lambda: str(of_session(session)))
    assert application.wait() == -signal.SIGKILL
    assert of_session(session) == {}
