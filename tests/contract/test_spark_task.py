"""A task on a real broker: the worker's core on a range, exactly once, whatever came before."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from hapax.core.errors import BatchAbortedError, ExitCode, StopError
from hapax.core.offset_commit import Mark
from hapax.core.records import Coordinates
from hapax.core.results import Failure
from hapax.engines.spark.plan import RangeOutcome, RangePlan, RangeReport
from hapax.kafka.consume.spark_sources import KafkaMember
from hapax.kafka.produce.standalone import fence
from hapax.kafka.produce.transaction import KafkaTransaction
from hapax.processing.crash_markers import marked
from hapax.wiring.task import run_plans
from tests.kit.damage import damage
from tests.kit.pipeline_under_test import header, source
from tests.kit.spark_ranges import Application
from tests.kit.topics import Given, produce, produce_aborted, produce_committed, transaction
from tests.kit.waiting import await_

TEN = [b"v%d" % number for number in range(10)]
UPPER = [value.upper() for value in TEN]


@pytest.fixture
def app(application):
    return application("task", partitions=1)


def write(app: Application, *values: bytes, partition: int = 0) -> None:
    produce(app.bootstrap, app.input, *(Given(value, partition=partition) for value in values))


def left_open(app: Application, member: KafkaMember, values: list[bytes], offset: int) -> Producer:
    """Leave a transaction open under the lane's name, as a killed task does."""
    with transaction(app.bootstrap, app.lane) as producer:
        for value in values:
            producer.produce(app.output, value)
        producer.flush(30)
        producer.send_offsets_to_transaction(
            [TopicPartition(app.input, 0, offset)], member.member(), 30
        )
        return producer
    raise AssertionError


def refused(producer: Producer) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(30)
    error: KafkaError = caught.value.args[0]
    return error


def test_a_range_is_committed_whole_with_its_headers(app):
    write(app, *TEN)
    member = app.member()
    report = app.run(app.plan(member))
    assert report.error is None
    assert report.progress == {(app.input, 0): 10}
    assert sum(settled.records for settled in report.settled) == 10
    assert app.values() == UPPER
    assert [source(record) for record in app.outputs()] == list(range(10))
    assert app.committed() == {0: 10}
    assert 0 < report.open_s <= report.work_s


@pytest.mark.parametrize("transform", ["spell", "spell_later", "spell_all"])
def test_calls_of_each_form_overlap_within_a_batch_and_outputs_are_in_input_order(app, transform):
    write(app, *TEN, b"boom", *TEN)
    plan = app.plan(app.member())
    report = app.run(
        plan, HAPAX_TRANSFORM=f"tests.kit.spark_business:{transform}", HAPAX_CALL__CONCURRENCY="8"
    )
    assert report.error is None
    assert (app.values(), app.letters()) == ([*UPPER, *UPPER], [b"boom"])
    assert app.committed() == {0: 21}


def test_plans_of_one_spark_partition_are_run_one_after_another(app):
    write(app, *TEN[:4])
    plan = app.plan(app.member())
    first, second = run_plans(app.settings, [plan, plan])
    assert (first.progress, second.progress) == ({(app.input, 0): 4}, {})
    assert app.values() == UPPER[:4]


def test_a_range_that_was_done_before_is_done_at_once_and_nothing_is_written_twice(app):
    write(app, *TEN)
    plan = app.plan(app.member())
    app.run(plan)
    write(app, b"later")
    report = app.run(plan)
    assert (report.outcome, report.settled) == (RangeOutcome.DONE, [])
    assert app.values() == UPPER


def test_a_range_goes_on_behind_what_an_earlier_attempt_came_to(app):
    write(app, *TEN)
    member = app.member()
    plan = app.plan(member)
    app.run(app.plan(member, records_max=4))
    report = app.run(plan)
    assert [settled.offsets[(app.input, 0)] for settled in report.settled] == [(4, 10)]
    assert app.values() == UPPER


def test_a_partition_that_is_not_in_the_plan_is_left_alone(application):
    app = application("task", partitions=2)
    write(app, *TEN[:3])
    write(app, b"other", partition=1)
    member = app.member()
    where = (app.input, 0)
    app.run(app.plan(member, starts={where: None}, ends={where: 3}))
    assert app.committed() == {0: 3, 1: None}


@pytest.mark.parametrize("count", [1, 3, 10])
def test_a_counted_range_takes_exactly_so_many_records(app, count):
    write(app, *TEN)
    report = app.run(app.plan(app.member(), records_max=count, pace=2))
    assert sum(settled.records for settled in report.settled) == count
    assert app.values() == UPPER[:count]
    assert app.committed() == {0: count}


def test_the_pace_of_the_last_range_is_where_the_next_begins(app):
    write(app, *TEN)
    member = app.member()
    first = app.run(app.plan(member, pace=1, records_max=5))
    assert [settled.records for settled in first.settled] == [1, 4]
    assert first.pace > 4
    assert app.run(app.plan(member, pace=first.pace)).settled[0].records > 4


@pytest.mark.row("SP18")
def test_no_transaction_is_larger_than_the_plan_allows(app):
    write(app, *TEN)
    assert app.run(app.plan(app.member(), batch_max=2)).settled[0].records == 2
    assert app.values() == UPPER


def test_a_range_ends_in_time_and_the_rest_is_for_the_next(app):
    write(app, *TEN)
    member = app.member()
    report = app.run(app.plan(member, duration_s=0.0))
    assert (report.outcome, report.settled) == (RangeOutcome.DONE, [])
    assert report.open_s > 0


def test_a_tail_of_control_records_and_aborted_data_is_committed_as_an_end(app):
    produce_committed(app.bootstrap, app.input, Given(b"a", partition=0))
    produce_aborted(app.bootstrap, app.input, Given(b"never", partition=0))
    member = app.member()
    (end,) = app.plan(member).ends.values()
    assert end > 2
    assert app.run(app.plan(member)).progress == {(app.input, 0): end}
    assert app.values() == [b"A"]
    assert app.committed() == {0: end}
    assert app.plan(member).starts == app.plan(member).ends


@pytest.mark.row("SP14")
def test_a_range_without_any_visible_record_still_commits_its_end(app):
    produce_aborted(app.bootstrap, app.input, Given(b"never", partition=0))
    member = app.member()
    plan = app.plan(member)
    report = app.run(plan)
    assert (report.settled, report.ended) == ([], plan.ends)
    assert app.committed() == {0: plan.ends[(app.input, 0)]}


def test_where_an_empty_partition_begins_is_committed(app):
    member = app.member()
    assert app.run(app.plan(member)).outcome is RangeOutcome.DONE
    assert app.committed() == {0: 0}


def test_where_latest_begins_is_committed_by_the_driver_before_anything_is_planned(app):
    write(app, *TEN[:3])
    member = app.member(start="latest")
    first = (app.input, 0)
    assert member.begin([first]) == {first: 3}
    assert app.committed() == {0: 3}
    write(app, *TEN[3:5])
    app.run(app.plan(member), HAPAX_INPUT__START="latest")
    assert app.values() == UPPER[3:5]


def test_a_twin_of_an_earlier_range_has_no_output(app, redis_url):
    settings = {"HAPAX_DEDUP__REDIS_URL": redis_url, "HAPAX_DEDUP__ID": "header:id"}
    given = [Given(b"a", headers=(("id", b"1"),)), Given(b"b", headers=(("id", b"2"),))]
    produce(app.bootstrap, app.input, *given)
    member = app.member()
    app.run(app.plan(member), **settings)
    produce(app.bootstrap, app.input, given[0])
    report = app.run(app.plan(member), **settings)
    assert (app.values(), app.committed()) == ([b"A", b"B"], {0: 3})
    assert report.settled[0].duplicates == 1


@pytest.mark.row("SP21")
def test_without_claims_nothing_is_written(app):
    produce(app.bootstrap, app.input, Given(b"a", b"key"))
    report = app.run(
        app.plan(app.member()),
        HAPAX_DEDUP__REDIS_URL="redis://127.0.0.1:1",
        HAPAX_DEDUP__ID="key",
        HAPAX_DEDUP__TIMEOUT="200ms",
    )
    assert report.outcome is RangeOutcome.CLAIMS
    assert (app.values(), app.committed()) == ([], {0: 0})


@pytest.mark.row("SP1")
def test_what_brokers_refuse_aborts_the_range_and_names_a_suspect(app):
    write(app, b"a", b"large")
    member = app.member()
    report = app.run(app.plan(member, batch_max=1))
    assert report.outcome is RangeOutcome.ABORTED
    assert (report.records, report.suspect) == (1, Coordinates(app.input, 0, 1))
    # Whether the refusal or the offsets come first is chance; any later attempt asks for reports.
    again = app.run(app.plan(member, batch_max=1, attempt=2))
    assert isinstance(again.error, BatchAbortedError)
    assert again.error.content
    assert list(again.error.culprits) == [Coordinates(app.input, 0, 1)]
    assert (app.values(), app.committed()) == ([b"A"], {0: 1})


def test_a_transaction_that_outlived_half_its_time_halves_what_the_lane_takes_next(
    app, monkeypatch
):
    write(app, *TEN)
    member = app.member()

    def slow(transaction: KafkaTransaction) -> None:
        time.sleep(1.1)  # the transaction's own time is what is tested
        transaction.abort()
        raise BatchAbortedError("too slow")

    with monkeypatch.context() as patch:
        patch.setattr(KafkaTransaction, "commit", slow)
        known = frozenset({(app.input, 0)})  # no transaction of a mark before that of the records
        report = app.run(app.plan(member, trusted=known), HAPAX_TRANSACTION__TIMEOUT="2s")
    assert (report.outcome, report.pace) == (RangeOutcome.ABORTED, 5)
    assert ("batch_halved", (5, "too slow")) in report.events
    report = app.run(app.plan(member, pace=report.pace), HAPAX_TRANSACTION__TIMEOUT="2s")
    assert report.settled[0].records == 5
    assert sum(settled.records for settled in report.settled) == 10


def test_marks_of_a_range_are_gone_with_its_report_and_its_partitions_are_trusted(app):
    write(app, *TEN)
    member = app.member()
    report = app.run(app.plan(member))
    assert (report.trusted, report.marks) == ([(app.input, 0)], {})
    report = app.run(app.plan(member))
    assert "records_isolated" not in dict(report.events)


def test_a_second_attempt_isolates_what_a_task_died_over_before_and_marks_nothing(app):
    """It trusted all, so that a record that kills killed each task while another was refused."""
    write(app, b"a", b"b")
    member = app.member()
    mark = TopicPartition(app.input, 0, 0, marked(None, Mark(1, 1)))
    with transaction(app.bootstrap, app.lane) as producer:
        producer.send_offsets_to_transaction([mark], member.member(), 30)
        producer.commit_transaction(30)
    report = app.run(app.plan(member, attempt=2))
    assert dict(report.events)["records_isolated"] == ((app.input, 0), 0, 1, 1)
    # A process for suspects may take longer to start than a batch may be held: then they are two.
    spans = [one.offsets[app.input, 0] for one in report.settled]
    assert (spans[0][0], spans[-1][1]) == (0, 2)
    assert app.values() == [b"A", b"B"]


def test_attempts_that_are_refused_suspect_nothing_of_what_the_first_of_them_has_marked(app):
    write(app, b"large")
    member, where, marks = app.member(), (app.input, 0), {(app.input, 0): Mark(1, 1)}
    with transaction(app.bootstrap, app.lane) as producer:
        offset = TopicPartition(*where, 0, marked(None, marks[where]))
        producer.send_offsets_to_transaction([offset], member.member(), 30)
        producer.commit_transaction(30)
    for attempt in (2, 3):  # they write no marks of their own
        report = app.run(app.plan(member, attempt=attempt, marks=marks))
        assert report.error is not None
        assert "records_isolated" not in dict(report.events)
        marks = report.marks
        assert marks == {where: Mark(1, 1)}


def test_a_set_that_cannot_be_decoded_is_never_passed_and_the_report_says_so(app, sandbox):
    for value in (b"a", b"b", b"c"):
        write(app, value)
    damage(sandbox, app.input, 1)
    report = app.run(app.plan(app.member(), duration_s=3.0))
    assert [(where, one.offset) for where, one in report.stuck.items()] == [((app.input, 0), 1)]
    assert (app.values(), app.committed()) == ([b"A"], {0: 1})


def test_a_condemned_record_becomes_a_dead_letter(app):
    write(app, b"a", b"large", b"c")
    rejected = {Coordinates(app.input, 0, 1): Failure("Refused", "too large", 1)}
    report = app.run(app.plan(app.member(), rejected=rejected, attempt=4))
    assert report.outcome is RangeOutcome.DONE
    assert (app.values(), app.letters()) == ([b"A", b"C"], [b"large"])
    assert report.settled[0].attempt == 4


def test_failures_of_other_lanes_count_in_the_rate(app):
    write(app, b"a", b"boom")
    settings = {"HAPAX_DEAD_LETTER__RATE_MAX": "0.5", "HAPAX_DEAD_LETTER__RECORDS_MIN": "10"}
    member = app.member()
    report = app.run(app.plan(member, failed=(10, 9)), **settings)
    assert isinstance(report.error, StopError)
    assert report.error.exit_code is ExitCode.DEAD_LETTER_LIMIT
    assert (app.values(), app.letters(), app.committed()) == ([], [], {0: 0})


class Running:
    """A task beside the test."""

    def __init__(self, app: Application, plan: RangePlan) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._report = self._pool.submit(app.run, plan)

    @property
    def over(self) -> bool:
        return self._report.done()

    def report(self) -> RangeReport:
        report = self._report.result(60)
        self._pool.shutdown()
        return report


def staying(app: Application, member: KafkaMember, **facts: Any) -> Running:
    write(app, b"first")
    running = Running(app, app.plan(member, **({"stay_s": 20.0} | facts)))
    await_(lambda: app.values()[-1:] == [b"FIRST"], 30, lambda: "it never came")
    return running


def test_a_task_that_stays_takes_what_comes_behind_its_ends_and_where_it_had_none(application):
    app = application("task", partitions=2)
    app.commit(dict.fromkeys(app.partitions, 0))
    running = staying(app, app.member(), ends={(app.input, 0): 1}, duration_s=6.0)
    write(app, b"later")
    await_(lambda: b"LATER" in app.values(), 5, lambda: "it was left for the next range")
    write(app, b"elsewhere", partition=1)
    await_(lambda: b"ELSEWHERE" in app.values(), 5, lambda: "it was left for the next range")
    assert not running.over
    report = running.report()
    assert (report.outcome, report.flowing) == (RangeOutcome.DONE, True)
    assert report.progress == {(app.input, 0): 2, (app.input, 1): 1}
    assert app.committed() == {0: 2, 1: 1}
    assert app.values() == [b"FIRST", b"LATER", b"ELSEWHERE"]


def test_a_task_that_stays_ends_soon_when_nothing_comes_behind_committed_markers(app):
    produce_committed(app.bootstrap, app.input, *(Given(value) for value in TEN))
    member = app.member()
    began_s = time.monotonic()
    report = app.run(app.plan(member, stay_s=0.3))
    assert time.monotonic() - began_s < 20, "it would stay for 30 s"
    assert (report.outcome, report.flowing) == (RangeOutcome.DONE, False)
    assert report.progress == {(app.input, 0): 11}, "the marker is committed, too"


def test_a_task_that_stays_ends_when_it_is_recalled(app, tmp_path):
    recall = tmp_path / "recall"
    running = staying(app, app.member(), recall=str(recall))
    recall.touch()
    report = running.report()
    assert (report.outcome, report.flowing) == (RangeOutcome.DONE, False)
    assert report.work_s < 20, "it would stay for 30 s"
    assert app.committed() == {0: 1}


def test_a_task_that_stays_is_fenced_by_the_lanes_next_registration(app):
    running = staying(app, app.member())
    fence(app.settings, app.lane)
    write(app, b"second")
    report = running.report()
    assert report.outcome is RangeOutcome.FENCED
    assert report.progress == {(app.input, 0): 1}
    assert (app.values(), app.committed()) == ([b"FIRST"], {0: 1})


def test_a_task_that_stays_is_refused_once_its_partitions_have_moved(app):
    member = app.member()
    running = staying(app, member)
    app.leave(member)
    write(app, b"second")
    assert running.report().outcome is RangeOutcome.ABORTED
    assert (app.values(), app.committed()) == ([b"FIRST"], {0: 1})
    assert app.run(app.plan(app.member())).outcome is RangeOutcome.DONE
    assert (app.values(), app.committed()) == ([b"FIRST", b"SECOND"], {0: 2})


def test_a_task_of_a_member_that_has_left_is_refused_and_leaves_nothing(app):
    write(app, *TEN)
    member = app.member()
    plan = app.plan(member)
    app.leave(member)
    report = app.run(plan)
    assert report.outcome is RangeOutcome.ABORTED
    assert isinstance(report.error, BatchAbortedError)
    assert not report.error.content
    assert (app.values(), app.committed()) == ([], {0: None})


@pytest.mark.row("SP2")
def test_a_killed_attempt_leaves_no_trace_and_the_next_one_does_it_once(app):
    write(app, *TEN)
    member = app.member()
    plan = app.plan(member)
    zombie = left_open(app, member, [b"never"], 5)
    assert app.run(plan).outcome is RangeOutcome.DONE
    assert (app.values(), app.committed()) == (UPPER, {0: 10})
    assert refused(zombie).code() == KafkaError._FENCED
    assert (app.values(), app.committed()) == (UPPER, {0: 10})


@pytest.mark.row("SP10")
def test_a_task_that_was_fenced_meanwhile_says_so(app, monkeypatch):
    write(app, *TEN)
    plan = app.plan(app.member())
    fenced = False

    def fence_first(_record: object) -> None:
        nonlocal fenced
        if not fenced:
            fenced = True
            fence(app.settings, app.lane)

    monkeypatch.setattr("tests.kit.spark_business.spell", fence_first)
    report = app.run(plan)
    assert report.outcome is RangeOutcome.FENCED
    assert not report.explained
    assert (app.values(), app.committed()) == ([], {0: 0})


def test_a_request_that_may_have_gone_out_twice_is_fenced_off(app, monkeypatch):
    from hapax.kafka.produce.transaction import KafkaTransaction  # noqa: PLC0415 - patched here

    commit, opened = KafkaTransaction.commit, KafkaTransaction.open
    opens: list[int] = []

    def doubtful(self: KafkaTransaction) -> None:
        commit(self)
        self.doubts = ["commit_transaction: sent twice"] if len(opens) == 1 else []

    def counted(self: KafkaTransaction) -> object:
        opens.append(1)
        return opened(self)

    monkeypatch.setattr(KafkaTransaction, "commit", doubtful)
    monkeypatch.setattr(KafkaTransaction, "open", counted)
    write(app, *TEN)
    report = app.run(app.plan(app.member(), pace=1))
    assert [said for name, said in report.events if name == "in_doubt_fenced"] == [
        ("commit_transaction: sent twice",)
    ]
    assert len(opens) == 2
    assert app.values() == UPPER
    assert [header(record, "hapax-source") for record in app.outputs()] == [
        f"{app.input}/0/{number}" for number in range(10)
    ]


def test_a_fence_aborts_at_once_what_a_dead_predecessor_left_open(app):
    write(app, *TEN)
    member = app.member()
    zombie = left_open(app, member, [b"never"], 5)
    fence(app.settings, app.lane)
    assert member.committed([(app.input, 0)]) == {(app.input, 0): None}
    assert refused(zombie).code() == KafkaError._FENCED
    assert (app.values(), app.committed()) == ([], {0: None})


def test_a_fence_of_one_name_leaves_the_others_alone(app):
    write(app, *TEN)
    producer = left_open(app, app.member(), [b"alive"], 5)
    fence(app.settings, app.worker)
    producer.commit_transaction(30)
    assert (app.values(), app.committed()) == ([b"alive"], {0: 5})
