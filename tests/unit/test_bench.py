"""The benchmark: a wrong run is void, goals are judged, a slower path fails the guard."""

import json
from typing import Any

import msgspec
import pytest
from confluent_kafka import Message

from bench import calls, course, guard, pairs, report, results, steps, throughput, traffic
from bench.contenders import FUNCTION, NATIVE, PYTHON, Contender
from bench.course import THROUGHPUT, Plan
from bench.keeping import entry, kept
from bench.measure import VoidRunError
from bench.peers.contenders import PLAIN, Peer
from bench.peers.environments import MissingError
from bench.report.goals import goals
from bench.report.tables import goals_table
from bench.transforms import STRAGGLER
from hapax import Output, Record
from hapax.processing.state import entry_of, prefix_of
from hapax.processing.transform import load_form

RECORDS = 3


def output(number: int, **other: Any) -> Message:
    one = traffic.message_id(number)
    added = [("hapax-id", one), ("hapax-source", b"in/0/%d" % number)]
    facts: dict[str, Any] = {
        "value": traffic.value(number, 7),
        "key": b"key-%d" % number,
        "headers": [("message-id", one), *added],
        **other,
    }
    return Message(**facts)


def judge(messages: list[Message], source: str | None = "in") -> None:
    checker = traffic.Checker(RECORDS, source)
    for message in messages:
        checker.take(message)
    checker.finish()


def outputs(**changed: Any) -> list[Message]:
    """Return all outputs, of which record 1 is changed."""
    return [output(0), output(1, **changed), output(2)]


def bare() -> list[Message]:
    headers = {"headers": None}
    return [output(number, **headers) for number in range(RECORDS)]


def test_outputs_that_are_what_they_should_be_count():
    judge(outputs())
    judge(bare(), source=None)


HEADERS: Any = output(1).headers()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ([*outputs(), output(1)], "two outputs"),
        (outputs()[:2], "1 records have no output"),
        (outputs(key=b"other"), "not its input"),
        (outputs(value=traffic.value(1, 7)[:-1] + b"!"), "not its input"),
        (outputs(headers=[("message-id", traffic.message_id(1))]), "lost its id"),
        (outputs(headers=None), "lost its id"),
        (outputs(headers=HEADERS[:2]), "names its source as b''"),
        (outputs(headers=[*HEADERS, ("x", b"")]), "names its source"),
        (outputs(headers=[*HEADERS[:2], ("hapax-source", b"in/0/0")]), "names its source"),
        (outputs(headers=[*HEADERS[:2], ("hapax-source", b"other/0/1")]), "names its source"),
    ],
)
def test_a_run_with_a_wrong_output_or_headers_that_it_should_not_have_is_void(wrong, why):
    with pytest.raises(VoidRunError, match=why):
        judge(wrong)
    with pytest.raises(VoidRunError, match="should not have"):
        judge(outputs(), source=None)


def test_the_outputs_of_a_count_are_held_to_how_often_their_key_has_come():
    checker = traffic.Checker(RECORDS, "in", 2, counted=True)
    checker.take(output(0, value=traffic.value(0, 7) + bytes(7) + b"\1"))
    with pytest.raises(VoidRunError, match="record 1 has the count 2"):
        checker.take(output(1, value=traffic.value(1, 7) + bytes(7) + b"\2"))


def test_the_changelog_that_is_restored_has_what_the_service_writes():
    key, value = entry(7)
    assert entry_of(3, key) == prefix_of(3, b"key-7") + b"kept"
    assert msgspec.msgpack.decode(value) == kept(7)
    assert len(value) == 100


def run(cpu: float, rate: float = 1.0) -> results.Run:
    servers = {"broker_cpu_s_per_million": 1.0, "redis_cpu_s_per_million": 1.0}
    return {"cpu_s_per_million": cpu, "records_per_s": rate, "rss_mb": 100.0, **servers}


def found(runs: results.Runs) -> results.Results:
    return results.Results(parts={"throughput": {"records": 1, "runs": runs}})


def test_a_goal_is_judged_by_the_median_of_the_ratios_within_rounds():
    runs: results.Runs = {
        "plain loop": [run(10), run(20), run(10)],
        NATIVE[3].name: [run(6), run(13), run(9)],  # 0.6, 0.65, 0.9
    }
    first = goals(found(runs))[0]
    assert (first.bound, first.found, first.reached) == (0.65, 0.65, True)
    runs[NATIVE[3].name][1] = run(13.1)
    assert goals(found(runs))[0].reached is False
    assert "**missed**" in goals_table(found(runs))[2]


def test_a_void_run_is_in_no_ratio_and_what_was_not_measured_is_neither_reached_nor_missed():
    runs: results.Runs = {
        "plain loop": [run(10), None, run(10)],
        NATIVE[3].name: [None, run(1), run(6)],
    }
    assert results.ratios(runs, NATIVE[3].name, "plain loop", "cpu_s_per_million") == [0.6]
    assert {goal.reached for goal in goals(results.Results())} == {None}


@pytest.mark.parametrize(("load", "warned"), [([1.5, 6.0], False), ([1.5, 6.1], True)])
def test_the_page_warns_of_figures_from_a_busy_machine(load: list[float], warned: bool) -> None:  # noqa: FBT001 - a parameter of the test
    made = results.Made(machine={"cores": "2"}, load=load)
    runs = {"records": 1, "runs": {"plain loop": [run(10)]}}
    measured = results.Results(parts={"throughput": runs}, made={"throughput": made})
    assert ("busy with other programs (throughput at" in report.page(measured)) is warned


def test_a_newer_benchmark_replaces_its_parts_and_keeps_the_others():
    old = results.Results(
        parts={"claims": {"a": 1}, "spark": {"b": 1}},
        made={"claims": results.Made(date="then"), "spark": results.Made(voids=["gone"])},
    )
    new = results.Results(parts={"spark": {"b": 2}}, made={"spark": results.Made(date="now")})
    assert old.joined(new).voids == []
    assert old.joined(new).parts == {"claims": {"a": 1}, "spark": {"b": 2}}


def test_words_choose_contenders_and_the_loop_takes_part_always():
    plan = Plan(1, 1, 1.0, ("throughput", "quix"))
    assert plan.parts() == ("throughput",)
    assert [who.name for who in plan.chosen(THROUGHPUT)] == ["plain loop", "Quix Streams"]
    assert plan._replace(only=()).chosen(THROUGHPUT) == list(THROUGHPUT)


class Recorded:
    """A course whose runs cost what is given, and no time: seconds for a million records."""

    def __init__(self, costs: dict[str, list[float]]) -> None:
        self._costs = {name: iter(each) for name, each in costs.items()}
        self.runs = 0

    def backlog(self, _records: int) -> str:
        return "backlog"

    def start_cpu_s(self, _who: Contender, _few: str, _warm: tuple[str, int]) -> float:
        return 0.5

    def run(self, who: Contender, _backlog: str, records: int) -> dict[str, float]:
        self.runs += 1
        return {"cpu_s": 0.5 + next(self._costs[who.name]) * records / 1e6}


GUARDED = PYTHON[3]
ALLOWED = guard.Bounds(1.1, [guard.Bound(GUARDED.name, 1.0, "a reason")])


def guarded(loop: list[float], ours: list[float]) -> tuple[list[str], int]:
    """Return what the guard complains about, and after how many rounds."""
    course: Any = Recorded({PLAIN.name: loop, GUARDED.name: ours})
    ratios = guard.ratios(course, [GUARDED], {GUARDED.name: 1.1}, 1000)
    return guard.excesses(ratios, ALLOWED), course.runs // 2


def test_a_record_path_that_costs_ten_percent_more_than_its_bound_fails_the_guard():
    complaints, rounds = guarded([10.0] * 8, [11.2] * 8)
    assert len(complaints) == 1
    assert "costs 1.12 of the plain loop, more than 1.10" in complaints[0]
    assert rounds == guard.ROUNDS_MAX


@pytest.mark.parametrize(
    ("ours", "rounds"),
    [
        ([10.9] * 8, guard.ROUNDS_MIN),
        ([15.0, 13.0, 14.0, 12.0, 10.5, 9.0, 9.0, 9.0], 5),  # a busy machine, and a quiet round
    ],
)
def test_a_record_path_within_its_bound_passes_after_the_least_number_of_rounds(ours, rounds):
    assert guarded([10.0] * 8, ours) == ([], rounds)


class Absent(Peer, frozen=True, kw_only=True):
    """A peer whose environment cannot be made."""

    def prepare(self) -> None:
        raise MissingError("there is no compiler")


def test_a_peer_that_cannot_be_had_is_named_with_the_reason_and_the_others_remain():
    made = results.Made()
    assert course.present([PLAIN, Absent(name="absent")], made) == [PLAIN]
    assert made.missing == {"absent": "there is no compiler"}


class Faulty(Recorded):
    """The second run over the backlog is void."""

    def run(self, who: Contender, _backlog: str, records: int) -> dict[str, float]:
        found = super().run(who, _backlog, records)
        if self.runs == 2:
            raise VoidRunError("record 7 has two outputs")
        servers = {"broker_cpu_s": 1.0, "redis_cpu_s": 1.0}
        return found | {"records_per_s": 1.0, "rss_mb": 1.0} | servers


def test_a_void_run_is_named_and_the_benchmark_continues():
    made, faulty = results.Made(), Faulty({PLAIN.name: [10.0] * 3})
    on: Any = faulty
    *_, part = throughput.measure(on, [PLAIN], 1000, 3, made)
    assert [each is None for each in part["runs"][PLAIN.name]] == [False, True, False]
    assert part["runs"][PLAIN.name][0]["cpu_s_per_million"] == pytest.approx(10.0)
    assert made.voids == ["throughput, round 2, plain loop: record 7 has two outputs"]
    text = report.tables_of(results.Results(parts={"throughput": part}, made={"throughput": made}))
    assert "- throughput, round 2, plain loop: record 7 has two outputs" in text


def test_the_function_that_contenders_call_can_be_loaded():
    record = Record("in", 0, 7, b"k", b"v")
    assert load_form(FUNCTION).function(record) == Output(b"v")


def moments(straggler_ms: int, others_end_ms: int) -> list[list[int]]:
    """Return when outputs were written: one each millisecond by the others, until they end."""
    partition, offset = STRAGGLER
    assert partition == 0
    return [[1000] * offset + [straggler_ms], list(range(others_end_ms))]


def test_what_a_straggler_costs_is_the_rate_of_the_others_while_its_call_is_in_flight():
    assert calls.others_per_s(moments(11_000, 20_000), straggles=True) == 1000
    assert calls.others_per_s(moments(1_001, 20_000), straggles=False) == 1000


@pytest.mark.parametrize(
    ("ends_ms", "why"),
    [((1_001, 20_000), "shorter than it should"), ((11_000, 9_000), "too short")],
)
def test_a_straggler_that_did_not_straggle_or_outlived_the_backlog_makes_its_run_void(ends_ms, why):
    with pytest.raises(VoidRunError, match=why):
        calls.others_per_s(moments(*ends_ms), straggles=True)


# What the small benchmarks make of a run: ratios of a pair, steps and stalls from log lines.


def line(records: int, **phases_ms: float) -> str:
    phases = dict.fromkeys(steps.STEPS, 0.0) | phases_ms
    told = {"transactions": 1, "records": records, "phases_ms": phases}
    return json.dumps({"event": "transaction_committed", **told}).replace(": ", ":")


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "run-1.log"
    lines = [line(10, claim=2.0, commit=3.0), "no JSON", line(30, claim=1.0, send_offsets=500.0)]
    path.write_text("\n".join(lines))
    return path


def test_the_time_for_claims_is_that_of_all_batches_and_a_stall_has_the_name_of_its_step(log):
    spent = pairs.phases(log)
    assert spent["claim"] / spent["records"] == 3.0 / 40
    assert spent["batches"] == 2
    run, stalls = steps.of_batches(log)
    assert stalls == {"send_offsets": 1}
    assert run["all p99"] == 501.0


def test_ratios_are_taken_within_a_pair_and_not_of_medians():
    servers = ("broker_cpu_s_per_million", "redis_cpu_s_per_million")
    keys = ("cpu_s_per_million", "records_per_s", "wait_us", *servers)
    one = [dict.fromkeys(keys, value) for value in (1.0, 20.0, 300.0)]
    other = [dict.fromkeys(keys, value) for value in (2.0, 10.0, 300.0)]
    assert pairs.table({"one": one, "other": other})[-1].split("|")[2] == "1.00 (0.50-2.00)"
