"""What a change has to touch, as CONTRIBUTING says it: few places, and each of them is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES_MAX = {
    "guarantee mode": 3,
    "id source": 1,
    "claim store": 3,
    "dead-letter field": 2,
    "metric": 2,
    "setting": 2,
    "engine": 3,
}
_PLACE = re.compile(r"`(?P<path>service/hapax/[\w/.]+)`(?: `(?P<name>\w+(?:\.\w+)?)`)?")


def trails() -> dict[str, list[tuple[str, str | None]]]:
    """Return the places of each trail: a file or folder, and a name that it defines."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page.partition("\n### What a change touches\n")[2].partition("\n## ")[0]
    rows = re.findall(r"(?m)^\| a(?:n)? (?:new )?([\w -]+?) \| (.*) \|$", section)
    return {what: [(m["path"], m["name"]) for m in _PLACE.finditer(cell)] for what, cell in rows}


def names(path: Path) -> set[str]:
    """Return what a module defines, with the members of its classes as ``Class.member``."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
                found.add(name)
            case ast.FunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name, body=body):
                found.add(name)
                found |= {f"{name}.{each.name}" for each in body if hasattr(each, "name")}
            case _:
                pass
    return found


def test_every_trail_is_told():
    assert trails().keys() == PLACES_MAX.keys()


@pytest.mark.parametrize("what", PLACES_MAX)
def test_a_trail_has_few_places_and_each_is_there(what):
    places = trails()[what]
    assert 1 <= len({path for path, _ in places}) <= PLACES_MAX[what]
    for path, name in places:
        assert (ROOT / path).exists(), path
        if name is not None:
            assert name in names(ROOT / path), f"{path} does not define {name}"


def test_a_name_that_is_gone_would_be_noticed():
    known = names(ROOT / "service/hapax/core/errors.py")
    assert "Poison" in known
    assert "Potion" not in known
