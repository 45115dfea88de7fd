"""``hapax run`` before the service itself has begun, and behind it."""

import subprocess
import sys

import hapax
from tests.kit.commands import run_captured

STAND_IN = """
import atexit, os, signal, sys, types
stand_in = types.ModuleType("hapax.commands.run")
def run():
    {does}
stand_in.run = run
sys.modules["hapax.commands.run"] = stand_in
sys.argv = ["hapax", "run"]
import hapax.__main__
hapax.__main__.main()
"""


def left(does: str) -> subprocess.CompletedProcess[str]:
    """Run the command with a service that only does this, and wait for its end."""
    code = STAND_IN.format(does=does)
    return run_captured([sys.executable, "-c", code], timeout=60)


def test_sigterm_while_the_service_is_being_loaded_leaves_with_0():
    assert left("return os.kill(os.getpid(), signal.SIGTERM) or 9").returncode == 0


def test_the_interpreter_is_not_taken_apart_under_threads_that_the_client_left_behind():
    """What they do meanwhile is undefined; here it ends the process with SIGABRT."""
    end = left("atexit.register(os.abort); print('the last line'); return 5")
    assert (end.returncode, end.stdout) == (5, "the last line\n")


def test_a_service_that_crashes_leaves_with_1_and_says_where():
    end = left("atexit.register(os.abort); raise LookupError('nothing there')")
    assert end.returncode == 1
    assert "LookupError: nothing there" in end.stderr
    assert "in run" in end.stderr


def test_other_commands_leave_in_the_same_way():
    code = (
        "import atexit, os, sys; atexit.register(os.abort);"
        " sys.argv = ['hapax', {!r}]; import hapax.__main__; hapax.__main__.main()"
    )
    ends = [
        subprocess.run([sys.executable, "-c", code.format(word)], check=False, capture_output=True)
        for word in ("--help", "no-such-command")
    ]
    assert [end.returncode for end in ends] == [0, 2]
    assert b"exactly-once" in ends[0].stdout.lower()


def test_the_version_is_printed_with_the_name():
    ask = [sys.executable, "-m", "hapax", "--version"]
    end = run_captured(ask, timeout=60)
    assert (end.returncode, end.stdout, end.stderr) == (0, f"hapax {hapax.__version__}\n", "")
