"""``hapax demo``: faults strike, nothing is lost, and everything that was started ends."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it carries no types
import pytest

from tests.kit.commands import run_captured
from tests.kit.proof import at_length

COMMAND = [sys.executable, "-m", "hapax", "demo"]
ROOT = Path(__file__).parents[2]

BROKEN = """
from hapax.__main__ import main
from hapax.demo.stage import Stage

right = Stage.environment
Stage.environment = lambda stage: {**right(stage), "HAPAX_GUARANTEE": "at_least_once"}
main()
"""


def judged(text: str, exit_codes: list[int]) -> dict[str, Any]:
    """Return the figures: nothing is wrong, though there was something to get wrong."""
    figures: dict[str, Any] = json.loads(text)
    ours, ordinary = figures["hapax"], figures["ordinary"]
    assert figures["exact"] is ours["exact"] is True
    anomalies = ("lost", "doubled", "out_of_order", "wrong", "from_aborted")
    assert {name: ours[name] for name in anomalies} == dict.fromkeys(anomalies, 0)
    assert figures["exit_codes"] == exit_codes
    assert figures["aborted"] > 0
    assert ours["dead_letters"] > 0
    assert ours["duplicates_removed"] == ours["records_in"] - ours["events"] > 0
    # The ordinary loop read the same input, and the judge sees what came of it.
    assert len(figures["ordinary_faults"]) == 2
    assert ordinary["records_in"] == ours["records_in"]
    assert ordinary["doubled_by_repeats"] > 0
    assert ordinary["exact"] is False
    return figures


@pytest.mark.timeout(280)
def test_a_short_demo_strikes_and_shows_that_nothing_was_lost_doubled_or_reordered():
    done = run_captured(
        [*COMMAND, "--json", "--seconds", "5", "--rate", "1500"], cwd=ROOT, timeout=240
    )
    assert done.returncode == 0, done.stderr + done.stdout
    figures = judged(done.stdout, [0, 0])

    assert [fault["kind"] for fault in figures["faults"]] == ["kill", "freeze", "kill", "kill"]
    assert {fault["target"] for fault in figures["faults"]} == {"demo-0", "demo-1"}
    assert all(fault["back_after_s"] is not None for fault in figures["faults"])
    ours = figures["hapax"]
    assert ours["outputs"] > ours["events"] - ours["dead_letters"]
    assert figures["ordinary"]["doubled_by_crashes"] > 0


def _broken_demo() -> subprocess.CompletedProcess[str]:
    return run_captured(
        [sys.executable, "-c", BROKEN, "demo", "--seconds", "5", "--rate", "3000"],
        cwd=ROOT,
        timeout=180,
    )


@pytest.mark.long
@pytest.mark.timeout(600)
def test_workers_without_the_guarantee_are_caught():
    """Three tries: kills may all strike between two batches, where even such workers do no harm."""
    tries = 0
    while (done := _broken_demo()).returncode == 0 and (tries := tries + 1) < 3:
        pass
    assert done.returncode == 1, done.stderr + done.stdout
    assert "The promise was broken." in done.stdout
    assert re.search(r"doubled_by_crashes: orders/\d/\d+: \d+ effects, \d due", done.stdout)


MARK = "DEMO_STARTED_BY"
"""Everything that a demo starts inherits it: that is how what it left behind would be found."""


def marked(mark: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if _mark_of(process) == mark]


def _mark_of(process: psutil.Process) -> str | None:
    try:
        return str(process.environ().get(MARK))
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return None


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return ""


def interrupted(
    command: list[str], folder: Path, mark: str, begun: str
) -> tuple[list[str], str, str]:
    """Press Ctrl-C once it has said ``begun``; nothing that it started is left.

    Returns the commands of what ran then, and what the demo wrote to both of its streams.
    """
    demo = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, MARK: mark, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert demo.stderr is not None
        for line in demo.stderr:
            if begun in line:
                break
        # Redis writes its title over its environment, and what Spark starts may have left the tree.
        family = {*psutil.Process(demo.pid).children(recursive=True), *marked(mark)}
        commands = [_command(process) for process in family]
        demo.send_signal(signal.SIGINT)
        out, err = demo.communicate(timeout=60)
    finally:
        demo.kill()
    assert demo.returncode == 130
    assert psutil.wait_procs([*family, *marked(mark)], timeout=10)[1] == []
    assert list(folder.glob("hapax-*")) == []
    return commands, out, err


@pytest.mark.timeout(150)
def test_ctrl_c_ends_everything_that_was_started(unique, tmp_path):
    commands, out, err = interrupted(COMMAND, tmp_path, unique("demo"), "kill -9")
    assert sum("-m hapax run" in command for command in commands) == 2
    assert any("redis-server" in command for command in commands)
    assert (out, err) == ("", "Interrupted; everything that was started has ended.\n")
    assert list(tmp_path.iterdir()) == []


# -- On Spark ------------------------------------------------------------------------------

ON_SPARK = [sys.executable, "-m", "hapax", "demo", "--engine", "spark"]


@pytest.mark.timeout(560)
@pytest.mark.long
@pytest.mark.rounds
@at_length
def test_spark_is_killed_and_hands_over_to_a_worker_and_back_and_nothing_is_lost_or_doubled(
    unique, tmp_path
):
    mark = unique("demo")
    done = run_captured(
        [*ON_SPARK, "--json", "--seconds", "5", "--rate", "1500"],
        cwd=ROOT,
        env={**os.environ, MARK: mark, "TMPDIR": str(tmp_path)},
        timeout=500,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    figures = judged(done.stdout, [0])
    assert figures["engine"] == "spark"

    assert [fault["kind"] for fault in figures["faults"]] == ["Python worker kill", "driver kill"]
    for fault in figures["faults"]:
        assert fault["while_doing"] == "inside a transaction of a range"
        assert fault["back_after_s"] > 0

    # Both hand-overs happened, while records came in.
    ways = [(one["predecessor"], one["successor"]) for one in figures["hand_overs"]]
    assert ways == [("Spark", "worker"), ("worker", "Spark")]
    for one in figures["hand_overs"]:
        assert one["exit_code"] == 0
        assert one["published"] > 0
        # Rounded to tenths of a second: a worker may leave at once.
        assert 0 <= one["left_after_s"] < one["commits_after_s"]

    assert marked(mark) == []
    assert list(tmp_path.glob("hapax-*")) == []


@pytest.mark.timeout(200)
@pytest.mark.long
def test_ctrl_c_ends_spark_with_its_jvm_and_its_python_workers(unique, tmp_path):
    commands, out, err = interrupted(ON_SPARK, tmp_path, unique("demo"), "kill -9 a Python worker")
    assert any("org.apache.spark" in command for command in commands)
    assert sum("pyspark.daemon" in command for command in commands) >= 2
    assert out == ""
    assert err.endswith("Interrupted; everything that was started has ended.\n")
