"""Commands of a page for operators, typed as they are but for the names of its example."""

import re
import shlex
from pathlib import Path

from tests.kit.night import Desk
from tests.kit.pipeline_under_test import PipelineUnderTest

DOCS = Path(__file__).parents[2] / "docs"


def section(page: str, title: str) -> str:
    """Return what follows a title of a page, up to the next one."""
    _, found, rest = (DOCS / page).read_text().partition(f"\n## {title}\n")
    assert found, f"{page} has no section {title}"
    return rest.partition("\n## ")[0]


def type_section(desk: Desk, route: PipelineUnderTest, page: str, title: str) -> dict[str, str]:
    """Type every ``$ hapax`` line of a section in its order; return command → what it printed.

    The topics of the example are those of the route: ``orders``, ``orders-clean`` and
    ``orders-dead`` stand for its input, outputs and dead letters.
    """
    names = {
        "orders-clean": route.target,
        "orders-dead": route.dead_letters,
        "orders": route.source,
    }
    said = {}
    for line in re.findall(r"(?m)^\$ hapax (.+)$", section(page, title)):
        words = [
            re.sub(r"^(orders(?:-clean|-dead)?)(?=/|$)", lambda match: names[match[1]], word)
            for word in shlex.split(line)
        ]
        done = desk.type(*words)
        # The doctor may find fault with a sandbox of one broker.
        assert done.exit_code in ({0, 1} if words[0] == "doctor" else {0}), (line, done.output)
        said[line] = done.output
    assert said
    return said
