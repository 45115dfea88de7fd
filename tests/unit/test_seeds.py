import pytest

from tests.kit.turn import first, of_this_turn


def test_turns_have_seeds_of_their_own_and_together_all(monkeypatch):
    monkeypatch.delenv("DEEP", raising=False)
    played: list[int] = []
    for turn in ("", "1", "2"):
        monkeypatch.setenv("TURN", turn)
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
