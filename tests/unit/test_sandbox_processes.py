import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped] # psutil has no types
import pytest

from hapax.sandbox import broker, jars, machine
from hapax.sandbox.broker import archive_kafka
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.processes import LOOPBACK, ManagedProcess, Ports
from hapax.sandbox.watchdog import ChildWatchdog


@pytest.fixture
def watchdog():
    dog = ChildWatchdog()
    yield dog
    dog.close()


@pytest.fixture
def sleeper(tmp_path, watchdog):
    server = ManagedProcess(
        "Sleeper", ["/bin/sh", "-c", "exec sleep 600"], tmp_path / "log", watchdog
    )
    server.start()
    yield server
    server.kill()


def state(pid: int) -> str:
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return "gone"


def test_a_server_that_ends_at_once_fails_with_its_last_words_and_a_silent_one_is_given_up(
    tmp_path, watchdog, sleeper
):
    command = ["/bin/sh", "-c", "for n in $(seq 30); do echo line $n; done; exit 1"]
    server = ManagedProcess("Broken", command, tmp_path / "broken", watchdog)
    server.start()
    with pytest.raises(SandboxError, match="Broken ended while it started") as raised:
        server.wait_until(lambda: False)
    assert str(raised.value).splitlines()[1:] == [f"line {n}" for n in range(11, 31)]
    with pytest.raises(SandboxError, match="Sleeper did not answer for 0 s"):
        sleeper.wait_until(lambda: False, timeout_s=0.01)


def test_a_kill_is_the_end_and_a_new_start_is_a_new_process(sleeper):
    first = sleeper.pid
    assert state(first) != "gone"
    with pytest.raises(SandboxError, match="runs already"):
        sleeper.start()

    sleeper.kill()
    assert not sleeper.running
    assert state(first) == "gone"

    sleeper.start()
    assert state(sleeper.pid) != "gone"
    assert sleeper.pid != first


@pytest.mark.parametrize("end", [ManagedProcess.kill, ManagedProcess.terminate])
def test_a_paused_server_stands_still_until_it_is_resumed_and_can_be_ended(sleeper, end):
    sleeper.pause()
    sleeper.wait_until(lambda: state(sleeper.pid) == "stopped")
    sleeper.resume()
    sleeper.wait_until(lambda: state(sleeper.pid) == "sleeping")
    sleeper.pause()
    end(sleeper)
    assert not sleeper.running


def test_the_watchdog_ends_what_is_left_and_removes_the_folders(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    dog = ChildWatchdog(folder)
    server = ManagedProcess("Sleeper", ["/bin/sh", "-c", "exec sleep 600"], folder / "log", dog)
    server.start()

    dog.close()  # all that it ever sees of the death of its parent: the end of its input

    assert server._process is not None
    assert server._process.wait(30) == -9
    assert not folder.exists()


def test_the_watchdog_spares_what_was_reaped(tmp_path):
    dog = ChildWatchdog()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        dog.watch(other.pid)
        dog.forget(other.pid)
        dog.close()
        assert other.poll() is None


def test_a_reserved_port_is_free_for_its_server_and_nobody_else():
    ports = Ports()
    port = ports.reserve()
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind((LOOPBACK, port))
    for _start in range(2):
        with socket.create_server((LOOPBACK, port)):
            assert ports.reserve() != port
    ports.close()


# -- Archives of classes: where they are, and that one that was cut off is never used -----

Recorded = tuple[str, ...]


@pytest.fixture
def archive(tmp_path, monkeypatch):
    found = tmp_path / "archives" / "one.jsa"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jars, "fetched", lambda _lock: tmp_path)
    monkeypatch.setattr(machine, "classes_of_jars", lambda _folder: found)
    return found


def target(recording: Recorded) -> Path:
    [name] = [word for word in recording if "ArchiveClassesAtExit" in word]
    return Path(name.partition("=")[2])


def writing(calls: list[Recorded], error: SandboxError | None = None) -> Callable[..., None]:
    def run(*words: object) -> None:
        recording = words[-1]
        assert isinstance(recording, tuple)
        calls.append(recording)
        target(recording).write_bytes(b"classes")
        if error is not None:
            raise error

    return run


def test_an_archive_is_made_once_and_then_used(archive, monkeypatch):
    calls: list[Recorded] = []
    monkeypatch.setattr(broker, "_run_kafka", writing(calls))
    assert machine.class_options(archive) == ()
    assert archive_kafka() == archive_kafka() == archive
    assert len(calls) == 1
    assert f"-XX:SharedArchiveFile={archive}" in machine.class_options(archive)
    assert list(archive.parent.iterdir()) == [archive]


@pytest.mark.parametrize(
    ("fake", "is_blocked", "said"),
    [
        (writing([], SandboxError("killed")), False, "killed"),
        (lambda *_words: None, False, "does not archive classes"),
        (writing([]), True, "archives cannot be written"),
    ],
)
def test_an_archive_that_was_not_made_is_named_and_not_kept(
    archive, monkeypatch, fake, said, *, is_blocked
):
    monkeypatch.setattr(broker, "_run_kafka", fake)
    if is_blocked:
        archive.parent.touch()
    with pytest.raises(SandboxError, match=said):
        archive_kafka()
    assert is_blocked or list(archive.parent.iterdir()) == []


def test_archives_of_environments_that_are_gone_do_not_pile_up(archive, monkeypatch):
    archive.parent.mkdir()
    for number in range(6):
        (archive.parent / f"{number}.jsa").touch()
    monkeypatch.setattr(broker, "_run_kafka", writing([]))
    archive_kafka()
    assert archive.exists()
    assert len(list(archive.parent.iterdir())) == 4
