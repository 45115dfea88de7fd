"""Records of every shape, ids of every kind, and outputs that brokers refuse: one effect each."""

from typing import Any

import pytest

from hapax.core.records import Headers, Record
from tests.kit.impossible import IMPOSSIBLE, ONLY_THE_CLIENT_KNOWS
from tests.kit.orders import told
from tests.kit.pipeline_under_test import Done, PipelineUnderTest, header, source, values
from tests.kit.topics import Given

NOON_MS = 1_700_000_000_123
LARGE = bytes(range(250)) * 2000  # 500 kB
ODD: Headers = (
    ("twice", b"1"),
    ("", b"no name"),
    ("twice", b"2"),
    ("nothing", None),
    ("empty", b""),
    ("naïve ☃", b"\x00\xff\xfe"),
    ("hapax-id", b"of a pipeline before"),
    ("hapax-source", b"elsewhere/0/1"),
    ("hapax-part", b"1/2"),
)
SHAPES = {
    "three": Given(b"three", headers=(told({"value": "a"}, {"value": "b"}, {"value": "c"}),)),
    "filtered": Given(b"filtered", headers=(told(),)),
    "tombstone": Given(None, b"key"),
    "no key": Given(b"no key", None),
    "empty key": Given(b"empty key", b""),
    "empty value": Given(b"", b"key"),
    "large": Given(LARGE, b"large"),
    "odd headers": Given(b"odd", b"key", headers=ODD),
    "old": Given(b"old", timestamp_ms=NOON_MS),
    "to tombstone": Given(b"gone", b"key", headers=(told({"null": True}),)),
    "new key": Given(b"new key", b"key", headers=(told({"key": "other"}),)),
    "key taken away": Given(b"keyless", b"key", headers=(told({"key": None}),)),
    "new time": Given(b"new time", headers=(told({"timestamp_ms": NOON_MS + 1}),)),
    "poison": Given(b"ill", b"key", headers=(("raise", b""), *ODD), timestamp_ms=NOON_MS),
    "last": Given(b"last"),
}


# -- shapes -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shapes(sandbox, tmp_path_factory):
    route = PipelineUnderTest(sandbox, tmp_path_factory.mktemp("shapes"))
    route.create()
    route.write(*SHAPES.values())
    yield Done(route, route.run_to_end())
    route.close()


def only(done: Done, shape: str) -> Record:
    (record,) = done.outputs_of(list(SHAPES).index(shape))
    return record


def test_all_shapes_have_their_effects_in_order_and_without_id_they_are_counted(shapes):
    sources = [source(record) for record in shapes.route.outputs()]
    silent = [list(SHAPES).index(name) for name in ("filtered", "poison")]
    expected = [0, 0, *range(len(SHAPES))]
    assert sources == [number for number in expected if number not in silent]
    assert shapes.route.committed() == {0: len(SHAPES)}
    assert shapes.sum("records") == shapes.sum("without_id") == len(SHAPES)
    assert (shapes.sum("filtered"), shapes.sum("dead_letters")) == (1, 1)


def test_several_outputs_of_one_record_are_numbered(shapes):
    parts = shapes.outputs_of(0)
    assert values(parts) == [b"a", b"b", b"c"]
    assert [header(part, "hapax-part") for part in parts] == ["1/3", "2/3", "3/3"]
    assert {header(part, "hapax-id") for part in parts} == {f"{shapes.route.source}/0/0"}


@pytest.mark.parametrize(
    ("shape", "key", "value"),
    [
        ("tombstone", b"key", None),
        ("no key", None, b"no key"),
        ("empty key", b"", b"empty key"),
        ("empty value", b"key", b""),
        ("large", b"large", LARGE),
        ("to tombstone", b"key", None),
        ("new key", b"other", b"new key"),
        ("key taken away", None, b"keyless"),
    ],
)
def test_keys_and_values_are_what_they_were_or_what_the_transform_says(shapes, shape, key, value):
    record = only(shapes, shape)
    assert (record.key, record.value) == (key, value)


def test_headers_pass_through_as_they_are_but_for_those_of_a_pipeline_before(shapes):
    record = only(shapes, "odd headers")
    here = f"{shapes.route.source}/0/{list(SHAPES).index('odd headers')}".encode()
    assert record.headers == (*ODD[:6], ("hapax-id", here), ("hapax-source", here))


def test_timestamps_are_kept_unless_the_transform_sets_them(shapes):
    assert only(shapes, "old").timestamp_ms == NOON_MS
    assert only(shapes, "new time").timestamp_ms == NOON_MS + 1


@pytest.mark.row("T3")
def test_a_dead_letter_is_its_record_and_says_why(shapes):
    (dead,) = shapes.route.dead()
    assert (dead.key, dead.value, dead.timestamp_ms) == (b"key", b"ill", NOON_MS)
    here = f"{shapes.route.source}/0/{list(SHAPES).index('poison')}".encode()
    assert dead.headers == (
        ("raise", b""),
        *ODD[:6],
        ("hapax-id", here),
        ("hapax-source", here),
        ("hapax-error", b"ValueError: the record says so"),
        ("hapax-attempts", b"3"),
        ("hapax-app", shapes.route.app.encode()),
    )


# -- outputs that brokers refuse ----------------------------------------------------------

REFUSED: dict[str, dict[str, Any]] = {
    "a topic that is not there": {"topic": "no-such-topic"},
    "a topic that cannot be": {"topic": "no such topic!"},
    "a partition that is not there": {"partition": 77},
    "larger than its topic takes": {"size": 30_000},
    "larger than the client sends": {"size": 3_000_000},
}


@pytest.fixture(scope="module")
def refused(sandbox, tmp_path_factory):
    """One route for each, all at work together: 30 records, the tenth orders the impossible."""
    done = {}
    for name, order in REFUSED.items():
        route = PipelineUnderTest(sandbox, tmp_path_factory.mktemp("refused"))
        route.create(target={"max.message.bytes": "20000"})
        route.write(
            *(b"%d" % number for number in range(10)),
            Given(b"10", b"key", headers=(told({"value": "fine"}, order),)),
            *(b"%d" % number for number in range(11, 30)),
        )
        done[name] = Done(route, route.worker(STOP_AFTER__AT_END="true"))
    yield done
    for each in done.values():
        each.route.close()


@pytest.mark.row("T2")
@pytest.mark.parametrize("case", REFUSED)
def test_an_output_that_is_refused_makes_a_dead_letter_of_its_record_alone(refused, case):
    done = refused[case]
    done.worker.ends_with(0)
    (dead,) = done.route.dead()
    assert (dead.key, dead.value, source(dead)) == (b"key", b"10", 10)
    assert "hapax-error" in dict(dead.headers)
    assert values(done.route.outputs()) == [b"%d" % number for number in range(30) if number != 10]
    assert done.route.committed() == {0: 30}


# -- outputs that no client can send ------------------------------------------------------


def test_outputs_that_no_client_can_send_are_dead_letters_of_their_records_alone(sandbox, tmp_path):
    route = PipelineUnderTest(sandbox, tmp_path, TRANSFORM="tests.kit.impossible:order")
    route.create()
    names = [*IMPOSSIBLE, *ONLY_THE_CLIENT_KNOWS]
    route.write(*(Given(text.encode()) for name in names for text in (f"before {name}", name)))
    route.run_to_end()
    route.close()
    reasons = {**IMPOSSIBLE, **ONLY_THE_CLIENT_KNOWS}
    dead = {
        (record.value or b"").decode(): header(record, "hapax-error") for record in route.dead()
    }
    assert dead.keys() == reasons.keys()
    assert all(reasons[name][1] in text for name, text in dead.items()), dead
    assert values(route.outputs()) == [f"before {name}".encode() for name in names]
    assert route.committed() == {0: 2 * len(names)}
