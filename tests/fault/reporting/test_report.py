"""The report says what runs and tests have left, and nothing is as it must be without a reason."""

from typing import Any

import pytest

from tests.fault.reporting import report, tables
from tests.fault.reporting.matrix import NOT_BUILT, ROWS
from tests.fault.results import (
    Case,
    Counts,
    Judgement,
    Kept,
    Run,
    Strike,
    note_case,
    read_cases,
    read_kept,
    read_runs,
    write_kept,
    write_run,
)


def strike(**facts: Any) -> Strike:
    values = {"rows": ("P1",), "fault": "worker killed", "target": "w-0", "struck": 1}
    return Strike(**{"at_s": 1.0, "healed_s": 2.0, **values, **facts})


def run(**facts: Any) -> Run:
    return Run(**{"name": "worker", "strikes": [strike()], **facts})


ALL_ROWS = [Case(rows=tuple(ROWS), test="a::test_all", outcome="passed", seconds=1.0)]


def test_a_clean_run_with_every_row_covered_has_no_problem():
    assert report.problems([run()], ALL_ROWS) == []


@pytest.mark.parametrize(
    ("runs", "cases", "problem"),
    [
        ([run(judgement=Judgement(violations={"lost": 2}))], ALL_ROWS, "worker: {'lost': []}"),
        ([run(kind="control", expected=("lost",))], ALL_ROWS, "worker: nothing, must be"),
        ([run(strikes=[strike(struck=0)])], ALL_ROWS, "struck nothing"),
        ([run(strikes=[strike(promised_s=2.0)])], ALL_ROWS, "None s, not 2"),
        ([run(strikes=[strike(promised_s=2.0, recovery_s=4.1)])], ALL_ROWS, "4.1 s, not 2"),
        ([run()], [*ALL_ROWS, Case(rows=(), test="b", outcome="failed", seconds=1.0)], "b: failed"),
        ([run()], [], "rows that nothing covers: P2,"),
    ],
)
def test_what_is_not_as_it_must_be_is_named(runs, cases, problem):
    (found,) = report.problems(runs, cases)
    assert problem in found


def test_a_time_that_is_missed_by_little_or_on_a_shared_machine_is_a_figure_and_no_problem():
    late = [strike(promised_s=2.0, recovery_s=3.9)]
    much = [strike(promised_s=2.0, recovery_s=40.0), strike(promised_s=2.0)]
    runs = [run(strikes=late), run(strikes=much, shared=True)]
    assert report.problems(runs, ALL_ROWS) == []
    assert [one.late for each in runs for one in each.strikes] == [True] * 3


def test_a_failed_test_covers_no_row():
    failed = Case(rows=("Z1",), test="c", outcome="failed", seconds=1.0)
    assert "Z1" in tables.gaps([run()], [failed])


def test_a_control_is_as_expected_only_with_a_class_that_was_named():
    showed = run(kind="control", expected=("lost",), judgement=Judgement(violations={"order": 1}))
    assert not showed.as_expected
    assert "**survived**" in tables.controls_table([showed])


def test_runs_and_cases_survive_being_written(tmp_path):
    made = run(judgement=Judgement(counts=Counts(records=7), consume_counts={1: 7}))
    write_run(made, tmp_path)
    assert read_runs(tmp_path) == [made]
    assert made.commit
    assert made.machine["Kafka"]
    for outcome in ("failed", "passed"):
        note_case(Case(rows=("Z1",), test="d", outcome=outcome, seconds=0.1), tmp_path)
    assert [case.outcome for case in read_cases(tmp_path)] == ["passed"]


def test_a_promise_of_a_time_is_told_with_how_often_it_was_kept():
    times = (0.5, 1.5, 2.5, None)
    strikes = [strike(promise="back, static", promised_s=2.0, recovery_s=each) for each in times]
    text = tables.promises_table([run(strikes=[*strikes, strike()])])
    assert "| back, static | 2 | 4 | 2 | 2.0 | inf |" in text


def test_what_brokers_took_themselves_is_taken_off_the_time_to_recover():
    strikes = [strike(recovery_s=8.0, kafka_s=6.5), strike(recovery_s=5.0, kafka_s=3.0)]
    text = tables.faults_table([run(strikes=[*strikes, strike(recovery_s=1.0)])])
    assert "| worker killed | 3 | 5.0 | 8.0 | 2.0 |" in text


def test_times_of_a_run_on_a_shared_machine_are_left_out_and_its_faults_are_counted():
    slow = [strike(promise="back, static", promised_s=2.0, recovery_s=40.0)]
    quick = [strike(promise="back, static", promised_s=2.0, recovery_s=1.0)]
    runs = [run(strikes=slow, shared=True), run(strikes=quick)]
    assert "| worker killed | 2 | 1.0 | 1.0 |" in tables.faults_table(runs)
    assert "| back, static | 2 | 1 | 1 |" in tables.promises_table(runs)
    assert "| shared |" in tables.runs_table(runs)


def test_a_class_that_was_found_is_named_with_its_number_and_not_among_the_absent():
    text = tables.violations_list([run(judgement=Judgement(violations={"lost": 2}))])
    assert "- **lost: 2**" in text
    assert ": lost-write, dedup-loss, " in text


def test_the_matrix_counts_its_tests_and_names_a_row_with_an_outcome_that_is_news():
    one = Case(rows=("Z1",), test="a::test_one[x]", outcome="passed", seconds=1.0)
    two = Case(rows=("Z1",), test="a::test_two", outcome="xfailed", seconds=1.0)
    text = tables.matrix_table([], [one, one, two])
    assert "\n2 tests play rows as well; " in text
    assert " Z1 **xfailed**, " in text


def test_every_row_that_is_not_built_exists_and_has_a_reason():
    assert set(NOT_BUILT) <= set(ROWS)
    assert all(len(reason) > 20 for reason in NOT_BUILT.values())


def test_the_page_is_what_its_runs_say():
    kept = read_kept(report.KEPT)
    assert not kept.runs or report.PAGE.read_text(encoding="utf-8") == report.page(
        kept.runs, kept.cases
    )


def test_newer_runs_and_cases_take_the_place_of_older_ones_in_the_packed_file(tmp_path):
    path = tmp_path / "kept.json.gz"
    assert read_kept(path) == Kept()
    old = Kept(runs=[run(began="1"), run(name="b", began="2")], cases=ALL_ROWS)
    newer = [run(began="3", strikes=[strike(note="newer")])]
    failed = [Case(rows=("Z1",), test="a::test_all", outcome="failed", seconds=2.0)]
    write_kept(old.joined(newer, failed), path)
    assert read_kept(path) == Kept(runs=[old.runs[1], *newer], cases=failed)
    first = path.read_bytes()
    write_kept(read_kept(path), path)
    assert path.read_bytes() == first


def test_what_is_kept_of_runs_stays_small_and_is_one_file_and_its_pictures():
    kept = list(report.KEPT.parent.iterdir())
    assert {path.name for path in kept if path.suffix != ".svg"} == {report.KEPT.name, "full.json"}
    assert sum(path.stat().st_size for path in kept) <= 100_000
