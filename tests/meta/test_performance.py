"""docs/performance.md is what its figures give, and the README has its sentence."""

import re

import pytest

from bench import demo, guard, report, results
from bench.contenders import NATIVE, PYTHON
from bench.report.goals import goals


def test_the_page_of_the_speed_and_the_sentence_of_the_readme_are_what_its_figures_give():
    found, readme = results.read(report.KEPT), report.README.read_text()
    assert report.PAGE.read_text() == report.page(found), "Run: .venv/bin/python -m bench report"
    assert readme == report.with_short(readme, found)
    assert report.short(found) in readme


def test_a_figure_that_changes_changes_page_and_readme():
    found = results.read(report.KEPT)
    for run in found.parts["throughput"]["runs"]["plain loop"]:
        run["cpu_s_per_million"] *= 2
    readme = report.README.read_text()
    assert report.page(found) != report.PAGE.read_text()
    assert report.with_short(readme, found) != readme


def test_the_pictures_of_the_page_name_every_contender_that_was_measured():
    pictures = re.findall(r"!\[.+?\]\(performance/(\w+\.svg)\)", report.PAGE.read_text())
    assert sorted(path.name for path in report.KEPT.parent.glob("*.svg")) == sorted(pictures)
    runs = results.read(report.KEPT).parts["throughput"]["runs"]
    drawn = (report.KEPT.parent / "cpu.svg").read_text()
    assert [name for name in runs if any(runs[name]) and f">{name}<" not in drawn] == []


def test_every_goal_is_on_the_page_as_reached_missed_or_not_measured():
    page = report.PAGE.read_text()
    expected = {True: "reached", False: "**missed**", None: "not measured"}
    listed = [
        goal
        for goal in goals(results.read(report.KEPT))
        if re.search(
            rf"\| {re.escape(goal.title)} \|.*\| {re.escape(expected[goal.reached])} \|", page
        )
    ]
    assert listed == goals(results.read(report.KEPT))
    assert len(listed) == 40


def test_the_picture_of_the_demo_is_what_a_run_gave_and_shows_a_kill_and_a_freeze():
    picture = (report.PAGE.parent / "demo.svg").read_text()
    found = demo.figures(picture)
    assert demo.draw(found) == picture
    assert ("<script" in picture, "prefers-color-scheme:dark" in picture) == (False, True)
    assert found["counts"]["hapax"] == []
    _, doubled, crashed = found["counts"]["ordinary"][-1]
    assert doubled > crashed > 0
    spans = {name: demo.joined(lane) for name, lane in found["lanes"].items()}
    states = {name: {state for *_, state in each} for name, each in spans.items()}
    assert all({demo.RUNNING, demo.DEAD} <= each for each in states.values())
    assert demo.FROZEN in states["demo-1"]


@pytest.mark.parametrize("bound", guard.bounds().bounds, ids=lambda bound: bound.name)
def test_a_bound_of_the_guard_names_a_contender_and_its_reason(bound):
    assert bound.name in {who.name for who in (*NATIVE, *PYTHON)}
    assert len(bound.reason.split()) > 8
    assert guard.bounds().tolerance == 1.1
