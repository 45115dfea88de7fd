"""Optional concerns are known where they live, and in few other files: a count that only falls."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2] / "service/hapax"


class Concern(NamedTuple):
    """names: what its code is called by; own: its files; most: how many others may know it."""

    names: str
    own: set[str]
    most: int


CONCERNS = {
    "crash markers": Concern(
        "(?i)crash_?mark|crashing_|suspects$",
        {"processing/crash_markers.py", "engines/suspects.py", "engines/isolated_calls.py"},
        9,
    ),
    "later tries": Concern(
        "retry_later|^Later(Tries)?$|RetryLater|NOT_LATER|(?i:delay_?buffer)|later_(attempt|tries)",
        {
            "processing/retry_later.py",
            "kafka/consume/delay_buffer.py",
            "kafka/consume/retry_source.py",
        },
        18,
    ),
    "native path": Concern("(?i)native", {"kafka/native.py"}, 13),
    "other output cluster": Concern(
        "(?i)other_cluster|target_?(kafka|source|transaction|settings|rights|names|prefixes"
        "|progress|remarks|problems|context)|meet_target",
        {"kafka/consume/target_source.py", "kafka/produce/target.py"},
        16,
    ),
    "sets that cannot be decoded": Concern(
        "(?i)stuck|undecodable", {"kafka/undecodable.py", "kafka/consume/partition_state.py"}, 25
    ),
}


@cache
def names() -> dict[str, set[str]]:
    """Return by file what is defined, called, passed or imported there."""
    found = {}
    for path in ROOT.rglob("*.py"):
        every = found[str(path.relative_to(ROOT))] = set[str]()
        for node in ast.walk(ast.parse(path.read_text())):
            for field in ("id", "attr", "arg", "name", "module"):
                every.update(str(getattr(node, field, "")).split("."))
    return found


@pytest.mark.parametrize("what", CONCERNS)
def test_few_files_know_of_a_concern_that_is_not_theirs(what):
    names_of_it, own, most = CONCERNS[what]
    know = {
        file
        for file, every in names().items()
        if re.search(names_of_it, "\n".join(every), re.MULTILINE)
    }
    assert own <= know, "a file of its own has another name by now"
    others = sorted(know - own)
    assert len(others) == most, f"{len(others)} files: {others}; the figure only falls"
