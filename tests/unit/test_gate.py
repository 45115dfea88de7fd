"""The run that judges a commit: budgets, boxes, failures that are named, records that grow old."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.fault.controls.plans import CONTROLS
from tests.fault.controls.trials import chosen, parsed
from tests.fault.mutants.plans import MUTANTS
from tests.gate import admission, full, parts, rotating, running, soaking, verdict
from tests.gate.layers import RECORD_PATHS, layer_of
from tests.gate.parts import Part
from tests.kit.turn import Box

BUSY = "import time\nwhile time.process_time() < {}: pass"
SUITE = """
import pytest
@pytest.mark.parametrize("number", range(3))
def test_that_passes(number): pass
@pytest.mark.deep
def test_of_the_rotating_part(): pass
@pytest.mark.parametrize("way", ["kafka", "kafka-native"])
def test_on_a_broker(way): pass
"""


@pytest.fixture(autouse=True)
def _logs(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "LOGS", tmp_path)
    monkeypatch.setattr(Part, "log", property(lambda part: tmp_path / f"{part.name}.log"))


def python(name: str, code: str, cpu_s: float | None = None, limit_s: float = 60) -> Part:
    return Part(name, (sys.executable, "-c", code), cpu_s, limit_s=limit_s)


def play(folder: Path, *words: str) -> str:
    """Play a small suite with the layers of the gate; return what pytest printed."""
    file = folder / "test_suite.py"
    file.write_text(SUITE)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "tests.gate.layers", *words, str(file))
    options = ("-o", "addopts=", "-o", "markers=deep\nreal", "-o", "filterwarnings=")
    done = subprocess.run(
        (*command, *options, "--rootdir", str(folder), "-p", "no:cacheprovider"),
        cwd=parts.ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"{done.stdout}{done.stderr}\nexit {done.returncode}"


def test_a_part_that_takes_a_quarter_more_than_its_budget_is_red_though_nothing_failed():
    over, within = running.run(
        [python("over", BUSY.format(0.6), cpu_s=0.2), python("within", BUSY.format(0.1), cpu_s=30)]
    )
    assert (over.exit_code, over.over_budget, over.is_right) == (0, True, False)
    assert (within.over_budget, within.is_right) == (False, True)


def test_what_processes_of_a_part_take_counts_for_its_budget():
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY.format(0.6)!r}])"
    (outcome,) = running.run([python("parent", child, cpu_s=0.2)])
    assert outcome.cpu_s > 0.5
    assert outcome.over_budget


def test_a_part_over_its_limit_is_ended_and_red():
    (outcome,) = running.run([python("endless", "import time; time.sleep(600)", limit_s=0.5)])
    assert outcome.wall_s < 60
    assert not outcome.is_right


def test_a_failed_test_is_named_with_its_reason_and_the_command_that_plays_it_again(
    capsys, monkeypatch
):
    monkeypatch.delenv("CI", raising=False)
    printed = "failed: tests/unit/test_a.py::test_b[1] (call)\\nassert 1 == 2\\n1 failed, 7 passed"
    outcomes = running.run([python("rules", f"print('{printed}'); raise SystemExit(1)")])
    assert not verdict.tell("make test", outcomes, 1.0)
    text = capsys.readouterr().out
    assert "assert 1 == 2" in text
    assert "again: .venv/bin/pytest 'tests/unit/test_a.py::test_b[1]'" in text
    assert "tests: 7 passed, 1 failed, 0 skipped" in text.splitlines()
    assert text.splitlines()[-1].startswith("make test: FAILED")


def test_a_failure_of_a_part_on_trial_is_told_and_not_counted(capsys):
    outcomes = running.run([python(rotating.ON_TRIAL[0], "raise SystemExit(1)")])
    assert verdict.tell("make deep", outcomes, 1.0)
    assert "on trial: deep failed" in capsys.readouterr().out


def test_a_run_that_is_right_ends_in_one_line_that_says_what_ran_and_what_was_not_played(capsys):
    outcomes = running.run([python("rules", "print('9 passed in 1 s')")])
    assert verdict.tell("make test", outcomes, 1.0)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("make test: all right")
    assert "rules 9" in last
    assert "not played here" in last


def test_each_layer_plays_its_own_tests(tmp_path):
    assert "3 passed, 3 deselected" in play(tmp_path, "--layer", "rules")
    assert "3 passed, 3 deselected" in play(
        tmp_path, "--layer", "deep"
    )  # no test of tests/contract
    assert "exit 5" in play(tmp_path, "--layer", "long")


@pytest.mark.parametrize("now", [6, 7])
def test_the_contract_is_played_on_brokers_by_one_record_path_a_turn(now):
    layers = {
        path: layers_of(f"tests/contract/test_a.py::test_b[{path}]", path, now)
        for path in RECORD_PATHS
    }
    assert sorted(layers.values()) == ["deep", "promises"]
    assert layers[RECORD_PATHS[now % 2]] == "promises"


def layers_of(nodeid: str, path: str, now: int) -> str:
    marks = {"real": object()}
    call = SimpleNamespace(params={"world": path})
    item = SimpleNamespace(nodeid=nodeid, callspec=call, get_closest_marker=marks.get)
    return layer_of(cast("pytest.Item", item), now)


def test_what_a_box_does_not_reach_is_owed_and_played_first_the_next_time(tmp_path):
    owed = tmp_path / "owed.txt"
    words = ("--layer", "rules", "--owed", str(owed), "--first", str(owed), "-vv")
    assert "3 skipped" in play(tmp_path, *words, "--minutes", "0")
    assert len(owed.read_text().splitlines()) == 3
    last = owed.read_text().splitlines()[-1]
    owed.write_text(f"{last}\n")
    played = play(tmp_path, *words, "--minutes", "5", "--share", "1")
    assert played.index(f"{last.rpartition('::')[2]} PASSED") < played.index("[0] PASSED")
    assert owed.read_text() == ""


def test_a_box_that_plays_less_than_it_must_is_red(tmp_path):
    played = play(tmp_path, "--layer", "rules", "--minutes", "0", "--at-least", "1")
    assert "too little was played (0 tests)" in played
    assert "exit 1" in played
    assert "exit 0" in play(tmp_path, "--layer", "rules", "--at-least", "3")


def test_boxes_share_the_time_that_is_left_and_have_some_when_none_is():
    for minutes in (20.0, 0.0):
        boxed = [
            part
            for group in rotating.groups(minutes)
            for part in group
            if "--minutes" in part.command
        ]
        given = [float(part.command[part.command.index("--minutes") + 1]) for part in boxed]
        assert all(each >= 1.0 for each in given)
        assert sum(given[:2]) <= max(minutes, 2.0)


@pytest.mark.parametrize(("kind", "trials"), [("controls", CONTROLS), ("mutants", MUTANTS)])
def test_turns_in_a_row_play_every_trial(kind, trials):
    (part,) = (each for group in rotating.groups(20) for each in group if each.name == kind)
    words = part.command[3:]
    shares = int(words[words.index("--share") + 1])
    played = [
        {
            trial.name
            for trial in chosen(trials, parsed(trials, [*words, "--turn", str(now)]), Box())
        }
        for now in range(shares)
    ]
    assert all(played)
    assert set().union(*played) == {trial.name for trial in trials}


def test_every_part_of_a_round_is_due_once_and_a_complete_round_begins_again(tmp_path, monkeypatch):
    monkeypatch.setattr(full, "FILE", tmp_path / "full.json")
    full.FILE.write_text('{"parts": {}, "round": "a", "since": "a"}')
    every = full.every()
    assert full.due() == every
    for number, part in enumerate(every):
        full.note(running.Outcome(part, 0, 60.0, 60.0))
        assert len(full.due()) == (len(every) - number - 1 or len(every))
    full.note(running.Outcome(every[0], 0, 60.0, 60.0))
    assert full.recorded()["round"] == parts.commit() != "a"
    assert full.due() == every[1:]


def test_what_no_part_plays_stands_in_the_same_table(tmp_path, monkeypatch):
    monkeypatch.setattr(full, "FILE", tmp_path / "full.json")
    full.FILE.write_text('{"parts": {}, "round": "a", "since": "a"}')
    full.note_beside("matrix")
    rows = full.table().splitlines()
    assert any(row.startswith("| make matrix | 20") and parts.commit() in row for row in rows)
    assert "| make image | not since records began |  |  |" in rows


def test_a_part_that_was_never_played_is_as_old_as_the_record(tmp_path, monkeypatch):
    monkeypatch.setattr(full, "FILE", tmp_path / "full.json")
    monkeypatch.setattr(full, "_commits_since", {"old": 151, "new": 3}.__getitem__)
    names = [part.name for part in full.every()]
    played = {name: {"commit": "new"} for name in names[1:]}
    full.FILE.write_text(json.dumps({"parts": played, "round": "new", "since": "old"}))
    assert full.age() == (151, names[0])


def test_a_failure_sets_the_trial_of_a_test_back_and_one_failed_parameter_is_a_failure(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(admission, "FILE", tmp_path / "admitted.tsv")
    line = admission.Admitted(7, 0, "-", "tests/a.py::test_a")
    admission.write({line.test: line})
    assert soaking._note([line.test], {"tests/a.py::test_a[1]": "PASSED"}) == 0
    assert admission.admitted()[line.test].runs == 8
    verdicts = {"tests/a.py::test_a[1]": "PASSED", "tests/a.py::test_a[2]": "FAILED"}
    assert soaking._note([line.test], verdicts) == 1
    assert admission.admitted()[line.test][:2] == (0, 1)
    admission.admitted.cache_clear()


def test_every_admitted_test_exists():
    files = {line.test.partition("::")[0] for line in admission.admitted().values()}
    text = {file: (parts.ROOT / file).read_text() for file in files}
    names = [line.test.partition("[")[0].partition("::") for line in admission.admitted().values()]
    assert [name for file, _, name in names if f"def {name}(" not in text[file]] == []
