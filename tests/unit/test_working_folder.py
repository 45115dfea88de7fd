"""Files of the user's folder hide nothing of Python and of the libraries, and are told by name."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hapax.core.records import Output, Record
from hapax.engines.isolated_calls import IsolatedCalls
from hapax.processing.call_window import CallLimits
from tests.kit.commands import output_of, run_captured
from tests.kit.managed_process import clean_environment, required

GOOD = "from hapax import Output\ndef transform(record): return Output(b'mine')\n"
NEIGHBOURS = ("random", "email", "json", "redis", "logging", "socket", "typing_extensions", "queue")
HAPAX = str(Path(sys.executable).with_name("hapax"))
STARTS = [[HAPAX, "run"], [sys.executable, "-m", "hapax", "run"], [HAPAX, "config", "check"]]


def run(folder: Path, words: list[str], transform: str) -> subprocess.CompletedProcess[str]:
    settings = required(app="shop", TELEMETRY__PORT="0", TRANSFORM=transform)
    return run_captured(words, env=clean_environment() | settings, cwd=folder, timeout=60)


@pytest.mark.parametrize("words", [*STARTS[:2], [*STARTS[1][:-1], "audit"]], ids=" ".join)
def test_neighbours_named_like_modules_of_python_or_of_a_library_are_not_imported(tmp_path, words):
    for name in NEIGHBOURS:
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong one')\n")
    (tmp_path / "pipeline.py").write_text(GOOD)
    (tmp_path / "wanting.py").write_text("from email import send\n" + GOOD)
    (tmp_path / "leaving.py").write_text("raise KeyboardInterrupt")
    email = ("cannot import name 'send'", "email.py has the name of a module of Python")
    for transform, told in (
        ("pipeline:missing", ("pipeline has no missing",)),
        ("wanting:transform", email),
        ("leaving:transform", ("cannot import leaving: KeyboardInterrupt",)),
    ):
        end = run(tmp_path, words, transform)
        said = end.stdout + end.stderr
        assert end.returncode == 2, said
        assert [each for each in told if each not in said] == [], said
        assert "the wrong one" not in said


@pytest.mark.parametrize("words", STARTS[:2], ids=["hapax", "python -m hapax"])
@pytest.mark.parametrize("name", ["random", "email", "json", "redis"])
def test_a_function_in_such_a_file_leaves_with_2_and_names_the_file(tmp_path, words, name):
    (tmp_path / f"{name}.py").write_text(GOOD)
    end = run(tmp_path, words, f"{name}:transform")
    assert end.returncode == 2, end.stdout + end.stderr
    assert f"{name}.py has the name of a module of" in end.stdout + end.stderr
    assert "rename the file" in end.stdout + end.stderr


def test_a_package_of_the_folder_goes_before_an_installed_one_of_its_name(tmp_path):
    package = tmp_path / "pytest"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "own.py").write_text("WHO = 'mine'\n")
    code = (
        "import sys; sys.path[:] = sys.path[1:]\n"
        "from hapax.core.working_folder import import_from_here, import_own\n"
        "import_from_here(); import_own('pytest')\n"
        "import pytest.own, json; print(json.dumps(pytest.own.__file__))"
    )
    found = output_of([sys.executable, "-c", code], cwd=tmp_path)
    assert json.loads(found) == str(package / "own.py")


def test_isolated_calls_import_as_the_service_does(tmp_path, monkeypatch):
    (tmp_path / "socket.py").write_text("raise RuntimeError('the wrong one')\n")
    (tmp_path / "isolated_pipeline.py").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    calls = IsolatedCalls("isolated_pipeline:transform", CallLimits(), 20.0)
    assert calls.call([Record("in", 0, 0, None, b"")]) == [(Output(b"mine"),)]
    calls.close()


WITHOUT_POSIX = """
import asyncio, multiprocessing, os, signal, sqlite3, subprocess, sys, tempfile
for name in ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "uvloop"):
    sys.modules[name] = None
for module, names in {
    os: "register_at_fork fork fdatasync geteuid getuid killpg getpgid setsid uname pread pwrite"
    " O_DIRECTORY O_CLOEXEC O_NONBLOCK WNOHANG sched_getaffinity statvfs sysconf mkfifo wait4",
    signal: "SIGKILL SIGUSR1 SIGUSR2 SIGHUP SIGALRM SIGCHLD SIGPIPE pthread_kill pthread_sigmask"
    " setitimer sigwait",
}.items():
    for name in names.split():
        delattr(module, name)
"""
IN_TESTS = """
from hapax import Record
from hapax.publish import Publisher
from hapax.testing import Pipeline
async def one(record): return await asyncio.sleep(0, record.value)
def many(records: list[Record]): return [record.value for record in records]
def wrong(record): raise LookupError
for function, concurrency in ((one, 4), (many, 1), (one, 1), (lambda record: record.value, 4)):
    settings = {"HAPAX_CALL__CONCURRENCY": str(concurrency)}
    assert Pipeline(function, settings).run(b"1", b"2").values() == [b"1", b"2"]
assert len(Pipeline(wrong).run(b"1").dead_letters) == 1
"""


@pytest.mark.parametrize(
    ("code", "words", "said"),
    [
        (IN_TESTS, "config check", (0, "settings are fine\n", "")),
        ("", "sandbox up", (1, "", "hapax: this command needs Linux or macOS\n")),
    ],
)
def test_without_what_windows_lacks_tests_and_the_check_of_settings_run(
    tmp_path, code, words, said
):
    """A stand-in: this runs on Linux, without the modules and names that Windows has not."""
    (tmp_path / "pipeline.py").write_text(GOOD)
    start = f"sys.argv[1:] = {words.split()}\nfrom hapax.__main__ import main\nmain()\n"
    end = run(tmp_path, [sys.executable, "-c", WITHOUT_POSIX + code + start], "pipeline:transform")
    assert (end.returncode, end.stdout, end.stderr) == said
