"""Which share of what rotates a commit plays."""

import subprocess
from pathlib import Path

import pytest

from tests.gate.layers import function_of
from tests.kit.turn import is_in_share, of_commit, share, turn

NAMES = [f"tests/fault/test_{number}.py::test_it" for number in range(40)]
AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@example.org")


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_so_many_turns_in_a_row_play_each_once(n):
    for first in (0, 9, 574):
        played = [name for number in range(first, first + n) for name in share(NAMES, n, number)]
        assert sorted(played) == sorted(NAMES)
        for name in NAMES:
            assert sum(is_in_share(name, n, number) for number in range(first, first + n)) == 1


def test_no_turn_is_without_work_where_there_are_fewer_items_than_turns():
    assert [share(["a", "b"], 5, number) for number in range(3)] == [["a"], ["b"], ["a"]]
    assert share([], 5, 1) == []


def test_each_turn_plays_about_its_share():
    assert 10 <= sum(is_in_share(name, 2, 1) for name in NAMES) <= 30


def test_all_parameters_of_a_test_are_played_together():
    for name in NAMES:
        every = [function_of(f"{name}[{form}]") for form in ("list", "threads", "coroutine")]
        seen = {is_in_share(each, 2, 1) for each in every}
        assert seen == {is_in_share(name, 2, 1)}


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
    command = ("git", "-C", str(folder), *AUTHOR, *words)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
