"""The run that judges a commit: budgets, boxes, failures that are named, records that grow old."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import tests.gate.__main__ as gate_command
from tests.fault.controls.plans import CONTROLS
from tests.fault.controls.trials import chosen, parsed
from tests.fault.mutants.plans import MUTANTS
from tests.gate import admission, full, parts, rotating, running, soaking, verdict, yardstick
from tests.gate.layers import LONGEST, RECORD_PATHS, function_of, layer_of
from tests.gate.parts import Part
from tests.kit import skips
from tests.kit.commands import output_of, run_captured
from tests.kit.turn import Box, first, is_in_share, of_commit, of_this_turn, share, turn

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
    monkeypatch.setattr(full, "FILE", tmp_path / "full.json")
    full.FILE.write_text('{"parts": {}, "round": "a", "since": "a"}')


def python(name: str, code: str, cpu_s: float | None = None, limit_s: float = 60) -> Part:
    return Part(name, (sys.executable, "-c", code), cpu_s, limit_s=limit_s)


def play(folder: Path, *words: str) -> str:
    """Play a small suite with the layers of the gate; return what pytest printed."""
    file = folder / "test_suite.py"
    file.write_text(SUITE)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "tests.gate.layers", *words, str(file))
    options = ("-o", "addopts=", "-o", "markers=deep\nreal", "-o", "filterwarnings=")
    rest = (*options, "--rootdir", str(folder), "-p", "no:cacheprovider")
    done = run_captured((*command, *rest), cwd=parts.ROOT)
    return f"{done.stdout}{done.stderr}\nexit {done.returncode}"


def test_a_part_that_takes_a_quarter_more_than_its_budget_is_red_though_nothing_failed():
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY.format(1.5)!r}])"
    over, within = running.run(
        [python("over", child, cpu_s=0.2), python("within", BUSY.format(0.1), cpu_s=30)]
    )
    assert over.cpu_s > 0.5, "what its processes take counts"
    assert (over.exit_code, over.over_budget, over.is_right) == (0, True, False)
    assert (within.over_budget, within.is_right) == (False, True)


def test_a_budget_grows_with_the_slowness_of_the_machine_and_never_falls_below_itself(monkeypatch):
    outcomes = {}
    for measured in (0.5, 3.0):
        monkeypatch.setattr(yardstick, "slowness", lambda measured=measured: measured)
        (outcomes[measured],) = running.run([python("busy", BUSY.format(0.6), cpu_s=0.3)])
    assert [one.over_budget for one in outcomes.values()] == [True, False]
    assert [one.budget_s for one in outcomes.values()] == pytest.approx([0.3, 0.9])


def test_a_part_over_its_limit_is_ended_and_red():
    (outcome,) = running.run([python("endless", "import time; time.sleep(600)", limit_s=0.5)])
    assert outcome.wall_s < 60
    assert not outcome.is_right


def test_a_failed_test_is_named_with_its_reason_and_the_command_to_repeat_it(capsys, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    printed = "failed: tests/unit/test_a.py::test_b[1] (call)\\nassert 1 == 2\\n1 failed, 7 passed"
    outcomes = running.run([python("rules", f"print('{printed}'); raise SystemExit(1)")])
    assert not verdict.tell("make test", outcomes, 1.0)
    text = capsys.readouterr().out
    assert "assert 1 == 2" in text
    assert "again: .venv/bin/pytest 'tests/unit/test_a.py::test_b[1]'" in text
    assert "tests: 7 passed, 1 failed, 0 skipped" in text.splitlines()
    assert text.splitlines()[-1].startswith("make test: FAILED")


def test_a_run_that_is_right_ends_in_a_line_and_a_failure_on_trial_is_told_and_not_counted(capsys):
    outcomes = running.run([python("rules", "print('9 passed in 1 s')")])
    assert verdict.tell("make test", outcomes, 1.0)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("make test: all right")
    assert "rules 9" in last
    assert "not played here" in last
    outcomes = running.run([python(rotating.ON_TRIAL[0], "raise SystemExit(1)")])
    assert verdict.tell("make deep", outcomes, 1.0)
    assert "on trial: deep failed" in capsys.readouterr().out


def test_each_layer_plays_its_own_tests(tmp_path):
    assert "3 passed, 3 deselected" in play(tmp_path, "--layer", "rules")
    deep = play(tmp_path, "--layer", "deep")  # no test of tests/contract
    assert "3 passed, 3 deselected" in deep
    assert "exit 5" in play(tmp_path, "--layer", "long")


@pytest.mark.parametrize("now", [6, 7])
def test_the_contract_is_played_on_brokers_by_one_record_path_a_turn(now):
    layers = {
        path: layers_of(f"tests/contract/test_a.py::test_b[{path}]", path, now)
        for path in RECORD_PATHS
    }
    assert sorted(layers.values()) == ["deep", "promises"]
    assert layers[RECORD_PATHS[now % 2]] == "promises"


def test_what_begins_first_is_there():
    assert [group for group in LONGEST[1:] if not (ROOT / group).is_file()] == []


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
    assert set().union(*played) == {trial.name for trial in trials if not trial.rare}


def test_every_part_of_a_round_is_due_once_and_a_complete_round_begins_again():
    every = full.every()
    assert full.due() == every
    for number, part in enumerate(every):
        full.note(running.Outcome(part, 0, 60.0, 60.0))
        assert len(full.due()) == (len(every) - number - 1 or len(every))
    full.note(running.Outcome(every[0], 0, 60.0, 60.0))
    assert full.recorded()["round"] == parts.commit() != "a"
    assert [part.name for part in full.due()] == [part.name for part in every[1:]]


def test_two_rounds_play_half_of_the_rows_by_each_form_and_another_half_by_the_next(monkeypatch):
    monkeypatch.setattr(parts, "git", lambda *_words: "7")
    forms = [part.command for part in full.every() if part.name.startswith("faults by")]
    assert [words[words.index("--turn") + 1] for words in forms] == ["7", "8", "9", "10"]


def test_what_no_part_plays_stands_in_the_same_table():
    full.note_beside("matrix")
    rows = full.table().splitlines()
    assert any(row.startswith("| make matrix | 20") and parts.commit() in row for row in rows)
    assert "| make image | not since records began |  |  |" in rows


def test_a_part_that_was_never_played_is_as_old_as_the_record(monkeypatch):
    names = [part.name for part in full.every()]
    monkeypatch.setattr(full, "_commits_since", {"old": 151, "new": 3}.__getitem__)
    played = {name: {"commit": "new"} for name in [*names[1:5], *names[:5:-1]]}
    full.FILE.write_text(json.dumps({"parts": played, "round": "new", "since": "old"}))
    assert full.age() == (151, names[0])
    assert [part.name for part in full.due()[:3]] == [names[0], names[5], names[1]]


def test_tests_to_soak_are_named_after_its_options_as_make_does(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gate", "soak", "--minutes", "1", "tests/a.py", "tests/b.py"])
    assert gate_command._arguments().tests == ["tests/a.py", "tests/b.py"]


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


def test_every_admitted_test_exists_with_its_parameters():
    """One parameter that was renamed kept ``make soak`` from playing any."""
    output_of((*parts.PYTEST, "--co", *admission.admitted()), cwd=parts.ROOT)


NAMES = [f"tests/fault/test_{number}.py::test_it" for number in range(40)]
AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@example.org")


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_so_many_turns_in_a_row_play_each_once(n):
    for start in (0, 9, 574):
        played = [name for number in range(start, start + n) for name in share(NAMES, n, number)]
        assert sorted(played) == sorted(NAMES)
        for name in NAMES:
            assert sum(is_in_share(name, n, number) for number in range(start, start + n)) == 1


def test_no_turn_is_without_work_where_there_are_fewer_items_and_each_plays_about_its_share():
    assert [share(["a", "b"], 5, number) for number in range(3)] == [["a"], ["b"], ["a"]]
    assert share([], 5, 1) == []
    assert 10 <= sum(is_in_share(name, 2, 1) for name in NAMES) <= 30


def test_all_parameters_of_a_test_are_played_together():
    for name in NAMES:
        every = [function_of(f"{name}[{form}]") for form in ("list", "threads", "coroutine")]
        assert {is_in_share(each, 2, 1) for each in every} == {is_in_share(name, 2, 1)}


def test_each_commit_and_each_merge_is_one_turn(tmp_path):
    origin = tmp_path / "origin"
    _git(tmp_path, "init", "-q", "-b", "main", str(origin))
    turns = [_turn_after(origin) for _ in range(3)]
    _git(origin, "checkout", "-q", "-b", "side", "HEAD~1")
    assert [_turn_after(origin), _turn_after(origin)] == [3, 4]
    _git(origin, "checkout", "-q", "main")
    _git(origin, "merge", "-q", "--no-ff", "-m", "both", "side")
    of_commit.cache_clear()
    assert [*turns, of_commit(origin)] == [1, 2, 3, 4]


def test_a_shallow_clone_and_no_repository_have_some_turn(tmp_path):
    origin, shallow = tmp_path / "origin", tmp_path / "shallow"
    _git(tmp_path, "init", "-q", str(origin))
    for _ in range(2):
        _turn_after(origin)
    _git(tmp_path, "clone", "-q", "--depth", "1", origin.as_uri(), str(shallow))
    assert of_commit(shallow) == int(_git(shallow, "rev-parse", "--short=8", "HEAD"), 16)
    (tmp_path / "none").mkdir()
    assert of_commit(tmp_path / "none") == 0


def test_a_turn_can_be_named(monkeypatch):
    monkeypatch.setenv("TURN", "7")
    assert turn() == 7


def _turn_after(repository: Path) -> int:
    """Return the turn of one more commit."""
    _git(repository, "commit", "-q", "--allow-empty", "-m", "one more")
    of_commit.cache_clear()
    return of_commit(repository)


def _git(folder: Path, *words: str) -> str:
    return output_of(("git", "-C", str(folder), *AUTHOR, *words)).strip()


ITEMS = list("abcdef")


def test_without_minutes_all_is_played_in_order_and_in_a_box_each_is_first_at_some_turn(tmp_path):
    box = Box(owed=tmp_path / "owed", at_least=6)
    assert list(box.fill(iter(box.order(ITEMS, ITEMS, str, 7)), str)) == ITEMS
    assert box.close()
    assert (tmp_path / "owed").read_text() == ""
    box = Box(minutes=1)
    assert {box.order(ITEMS, ITEMS, str, turn)[0] for turn in range(60)} == {*ITEMS}


def test_fewer_than_the_named_minimum_is_a_failure(capsys):
    box = Box(minutes=1, at_least=3)
    box.began_s -= 61
    assert list(box.fill(iter(ITEMS), str)) == []
    assert not box.close()
    assert "*** played 0, at least 3 must be" in capsys.readouterr().out


def test_what_is_not_begun_in_time_is_owed_and_is_played_first_next_time(tmp_path, capsys):
    file = tmp_path / "parts" / "owed"
    box = Box(minutes=1, owed=file, at_least=2)
    played = []
    for item in box.fill(iter(box.order(ITEMS, ITEMS, str, 1)), str):
        played.append(item)
        if len(played) == 2:
            box.began_s -= 61
    assert box.close()
    left = file.read_text().splitlines()
    assert sorted([*played, *left]) == ITEMS
    assert len(left) == 4
    assert capsys.readouterr().out == "".join(f"owed: {name}\n" for name in left)
    file.write_text("not there any more\n" + file.read_text())
    assert Box(first=file).order(played, ITEMS, str, 2) == [*left, *played]


def test_turns_have_seeds_of_their_own_and_together_all(monkeypatch):
    monkeypatch.delenv("DEEP", raising=False)
    played: list[int] = []
    for number in ("", "1", "2"):
        monkeypatch.setenv("TURN", number)
        played += of_this_turn(60, 300)
    assert played == list(range(180))
    monkeypatch.setenv("DEEP", "1")
    assert of_this_turn(60, 300) == range(600, 900)


def test_a_noted_seed_is_tried_first_and_one_that_shows_nothing_is_searched_for_and_named():
    tried: list[int] = []

    def shows(seed: int) -> bool:
        tried.append(seed)
        return seed in {7, 9}

    assert (first(7, range(20), shows), tried) == (7, [7])
    with pytest.warns(match="another seed shows it by now, 7 instead of 8"):
        assert first(8, range(20), shows) == 7
    assert first(8, range(5), shows) is None


ROOT = Path(__file__).parents[2]
SKIPPED = {
    "test_mark.py": '@pytest.mark.skipif(True, reason="{}")\ndef test_it(): ...\n',
    "test_call.py": 'def test_it():\n    pytest.skip("{}")\n',
    "test_fixture.py": (
        '@pytest.fixture\ndef thing():\n    pytest.skip("{}")\ndef test_it(thing): ...\n'
    ),
    "test_file.py": 'pytest.importorskip("not_there", reason="{}")\n',
}


@pytest.mark.parametrize(
    ("variables", "reason", "outcome"),
    [
        ({"CI": "true"}, "Redis is not there", "1 failed, 3 errors in"),
        ({"CI": "true"}, "no gpg", "4 skipped in"),
        ({}, "Redis is not there", "4 skipped in"),
    ],
)
def test_a_skip_fails_in_ci_unless_its_reason_is_in_the_table(variables, reason, outcome, tmp_path):
    for name, text in SKIPPED.items():
        (tmp_path / name).write_text("import pytest\n" + text.format(reason))
    command = (sys.executable, "-m", "pytest", "-q", "-p", "tests.kit.skips")
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{ROOT / 'service'}", **variables}
    words = [*command, "-p", "no:cacheprovider", str(tmp_path)]
    done = run_captured(words, cwd=tmp_path, env=environment)
    assert outcome in done.stdout
    told = done.stdout.count(f"\nCI skips nothing that this machine can have: Skipped: {reason}")
    assert told == (0 if "skipped" in outcome else 4)


def test_the_native_path_is_excused_where_no_compiler_is_and_nowhere_else(monkeypatch):
    reason = "could not import 'hapax_fast': No module named 'hapax_fast'"
    for buildable in (True, False):
        monkeypatch.setattr(skips, "buildable", lambda answer=buildable: answer)
        assert (skips.excuse(reason) is None) == buildable
        assert (skips.excuse("no C compiler on this machine") is None) == buildable
