"""Every form of a transform: each record has its effect once, in input order, per key in series."""

import pytest

from hapax.core.records import Record
from tests.fault.rules import is_poison
from tests.kit.at_work import await_told
from tests.kit.calls import MODULE, PAUSE_MAX_S, STAMPS, Stamps
from tests.kit.flow import Flow
from tests.kit.pipeline_under_test import PipelineUnderTest, header, source
from tests.kit.topics import Given
from tests.kit.waiting import await_

FORMS = {
    # 1 is what it is unless set.
    "function": ("function", "1"),
    "threads": ("function", "16"),
    "coroutine in series": ("coroutine", "1"),
    "coroutine": ("coroutine", "16"),
    "list": ("batch", "1"),
    "list in threads": ("batch", "4"),
    "coroutine of a list": ("coroutine_batch", "4"),
    "class": ("Client", "16"),
    "class of a list": ("Model", "1"),
    "context": ("opened", "16"),
}
PARTITIONS, KEYS, RECORDS = 4, 40, 600
OVERLAPPING = ["threads", "coroutine", "coroutine of a list", "class", "context"]
OPENED = ["class", "class of a list", "context"]


@pytest.fixture
def stamps(tmp_path, monkeypatch):
    path = tmp_path / "stamps"
    monkeypatch.setenv(STAMPS, str(path))
    monkeypatch.setenv(PAUSE_MAX_S, "0.004")
    return Stamps(path)


@pytest.fixture
def route(sandbox, tmp_path, stamps):
    """Its processes leave stamps."""
    assert not stamps.calls()
    route = PipelineUnderTest(sandbox, tmp_path, partitions=PARTITIONS, CALL__RECORDS_MAX="32")
    route.create()
    yield route
    route.close()


def given(form: str) -> dict[str, str]:
    name, concurrency = FORMS[form]
    more = {} if concurrency == "1" else {"CALL__CONCURRENCY": concurrency}
    return {"TRANSFORM": f"{MODULE}:{name}", **more}


def keyed(records: int = RECORDS) -> list[Given]:
    return [
        Given(b"%d" % number, b"key-%d" % (number % KEYS), partition=number % KEYS % PARTITIONS)
        for number in range(records)
    ]


def in_order(outputs: list[Record]) -> bool:
    """Whether each output partition has the records of each input partition in their order."""
    last: dict[tuple[int, str], int] = {}
    for output in outputs:
        lane = (output.partition, header(output, "hapax-source").rsplit("/", 1)[0])
        if last.get(lane, -1) >= source(output):
            return False
        last[lane] = source(output)
    return True


@pytest.mark.parametrize("form", FORMS)
def test_each_form_gives_every_event_its_effect_once_and_in_order(
    sandbox, tmp_path, monkeypatch, form
):
    monkeypatch.setenv(PAUSE_MAX_S, "0.002")
    flow = Flow(sandbox, tmp_path, **given(form))
    try:
        flow.feed(2000)
        flow.worker("w-0")
        judgement = flow.finish()
    finally:
        flow.close()
    assert judgement.anomalies == {}
    counts = judgement.counts
    assert counts.outputs > 2000
    assert counts.dead_letters == sum(map(is_poison, range(counts.distinct))) > 0


@pytest.mark.parametrize("form", OVERLAPPING)
def test_calls_of_one_key_never_overlap_and_those_of_several_do(route, stamps, form):
    route.write(*keyed())
    route.run_to_end(**given(form))
    outputs = route.outputs()
    assert sorted(int(each.value or b"") for each in outputs) == list(range(RECORDS))
    assert in_order(outputs)
    assert sorted(stamps.called()) == sorted(set(stamps.called()))
    assert len(stamps.called()) == RECORDS
    assert stamps.overlaps() == []
    assert 1 < stamps.together_most() <= int(FORMS[form][1])


def test_one_at_a_time_calls_of_several_keys_do_not_overlap_either(route, stamps):
    route.write(*keyed(100))
    route.run_to_end(**given("coroutine in series"))
    assert len(stamps.calls()) == 100
    assert stamps.together_most() == 1


@pytest.mark.parametrize("form", ["threads", "coroutine"])
def test_functions_that_do_not_care_for_keys_are_called_at_once_and_outputs_keep_their_order(
    route, stamps, form
):
    """One key alone: in series it would have no overlaps."""
    route.write(*(Given(b"%d" % number, b"key", partition=0) for number in range(200)))
    route.run_to_end(**given(form), CALL__ORDER="none")
    assert [int(each.value or b"") for each in route.outputs()] == list(range(200))
    assert len(stamps.called()) == len(set(stamps.called())) == 200
    assert stamps.together_most() > 4


@pytest.mark.parametrize("form", ["threads", "coroutine"])
def test_records_without_a_key_are_called_at_once_and_outputs_keep_their_order(route, stamps, form):
    route.write(*(Given(b"%d" % number, partition=0) for number in range(200)))
    route.run_to_end(**given(form))
    assert sorted(source(each) for each in route.outputs()) == list(range(200))
    assert in_order(route.outputs())
    assert stamps.together_most() > 4


def test_a_list_has_at_most_so_many_records_and_those_of_a_key_in_input_order(route, stamps):
    route.write(*keyed())
    route.run_to_end(**given("list"))
    sizes = [len(call.places) for call in stamps.calls()]
    assert 1 < max(sizes) <= 32
    by_key: dict[str, list[int]] = {}
    for call in stamps.calls():
        for key, (_partition, offset) in zip(call.keys, call.places, strict=True):
            by_key.setdefault(key, []).append(offset)
    assert len(by_key) == KEYS
    assert all(offsets == sorted(offsets) for offsets in by_key.values())


@pytest.mark.parametrize("form", OPENED)
def test_what_a_form_needs_is_opened_once_and_closed_after_the_last_call(route, stamps, form):
    route.write(*keyed(100))
    worker = route.worker(**given(form))
    await_(lambda: route.lag() == 0, 30, worker.text)
    assert (stamps.times("setup"), stamps.times("teardown")) == (1, 0)
    assert worker.terminate() == 0, worker.text()
    assert (stamps.times("setup"), stamps.times("teardown")) == (1, 1)
    words = [line.split(" ")[2] for line in stamps.path.read_text().splitlines()]
    assert (words[0], words[-1]) == ("setup", "teardown")


def test_in_a_list_only_the_record_in_whose_place_an_error_is_becomes_a_dead_letter(route, stamps):
    wrong = {7, 300, 301}
    records = keyed()
    for number in wrong:
        records[number] = records[number]._replace(headers=(("raise", b""),))
    route.write(*records)
    route.run_to_end(**given("list"))
    assert {int(each.value or b"") for each in route.dead()} == wrong
    assert {header(each, "hapax-error") for each in route.dead()} == {
        "ValueError: the record says so"
    }
    assert len(route.outputs()) == RECORDS - len(wrong)
    assert in_order(route.outputs())
    once = [place for place in set(stamps.called()) if stamps.called().count(place) == 1]
    assert len(once) >= RECORDS - len(wrong), "a sound answer is kept"


def test_a_list_function_that_raises_is_halved_until_the_culprit_is_alone(route, stamps):
    wrong = {7, 300}
    records = keyed()
    for number in wrong:
        records[number] = records[number]._replace(headers=(("raise", b""),))
    route.write(*records)
    route.run_to_end(TRANSFORM=f"{MODULE}:raising_batch")
    assert {int(each.value or b"") for each in route.dead()} == wrong
    assert sorted(int(each.value or b"") for each in route.outputs()) == sorted(
        set(range(RECORDS)) - wrong
    )
    assert in_order(route.outputs())
    alone = {call.places for call in stamps.calls() if len(call.places) == 1}
    dead = {
        (int(header(each, "hapax-source").split("/")[1]), source(each)) for each in route.dead()
    }
    assert {(place,) for place in dead} <= alone


def test_a_record_has_the_id_of_its_event_or_its_own_coordinates(route):
    route.write(
        Given(b"named", b"k", (("message-id", b"order-7"),), partition=0),
        Given(b"nameless", b"k", partition=1),
    )
    route.run_to_end(TRANSFORM=f"{MODULE}:identify", CALL__CONCURRENCY="2")
    found = {header(each, "hapax-id"): each.value for each in route.outputs()}
    assert found == {
        "order-7": b"order-7",
        f"{route.source}/1/0": f"{route.source}/1/0".encode(),
    }


def test_an_idle_worker_of_coroutines_commits_and_waits(route):
    """Records that trickle in are each answered, not collected until a window is full."""
    worker = route.worker(**given("coroutine"))
    await_told(worker, "partitions_assigned")
    for number in range(3):
        route.write(Given(b"%d" % number, b"k", partition=0))
        route.await_outputs(number + 1)
    assert worker.terminate() == 0
