"""The benchmark of claims finds what docs/performance.md and its goals are made of."""

import pytest

from bench import claims, results
from bench.report.goals import goals
from bench.report.tables import TABLES

pytestmark = pytest.mark.real


def test_page_and_goals_can_be_made_of_what_the_benchmark_of_claims_finds():
    found = results.Results(parts={"claims": claims.run(ids=400, size=200, rounds=1)})
    title, _, *rows = TABLES["claims"](found.parts["claims"])
    assert {row.count("|") for row in rows} == {title.count("|")}
    assert [row.split(" | ")[0] for row in rows] == [
        "| filling",
        "| new",
        "| own",
        "| foreign",
        "| bare HSETNX, filling",
        "| bare HSETNX, new",
        "| bare HSETNX, own",
    ]
    assert {goal.title for goal in goals(found) if goal.found is not None} == {
        "CPU of Redis for an id, filling / a bare HSETNX",
        "CPU of Redis for an id, own / a bare HSETNX",
        "resident bytes of an id in Redis",
    }
