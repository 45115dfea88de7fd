"""What a box of time leaves over is named, and comes first the next time."""

from tests.kit.turn import Box

ITEMS = list("abcdef")


def _box(**how: object) -> Box:
    return Box(**how)  # type: ignore[arg-type] # minutes, files


def test_without_minutes_all_is_played_in_its_order(tmp_path):
    box = _box(owed=tmp_path / "owed", at_least=6)
    assert list(box.fill(iter(box.order(ITEMS, ITEMS, str, 7)), str)) == ITEMS
    assert box.close()
    assert (tmp_path / "owed").read_text() == ""


def test_what_is_not_begun_in_time_is_owed_and_is_played_first_next_time(tmp_path, capsys):
    file = tmp_path / "parts" / "owed"
    box = _box(minutes=1, owed=file, at_least=2)
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
    assert _box(first=file).order(played, ITEMS, str, 2) == [*left, *played]


def test_fewer_than_the_named_minimum_is_a_failure(capsys):
    box = _box(minutes=1, at_least=3)
    box.began_s -= 61
    assert list(box.fill(iter(ITEMS), str)) == []
    assert not box.close()
    assert "*** played 0, at least 3 must be" in capsys.readouterr().out


def test_in_a_box_every_item_is_the_first_at_some_turn():
    box = _box(minutes=1)
    assert {box.order(ITEMS, ITEMS, str, turn)[0] for turn in range(60)} == {*ITEMS}
