"""Ids of every kind: twins are dropped, and nothing else is."""

import pytest

from tests.kit.pipeline_under_test import Done, PipelineUnderTest, header, source, values
from tests.kit.topics import Given


def sent(event_id: bytes, value: bytes, *more: tuple[str, bytes]) -> Given:
    return Given(value, headers=(("message-id", event_id), *more))


@pytest.fixture(scope="module")
def identified(sandbox, tmp_path_factory):
    route = PipelineUnderTest(
        sandbox,
        tmp_path_factory.mktemp("identified"),
        DEDUP__REDIS_URL=sandbox.redis_url,
        DEDUP__ID="header:message-id,json:/order/id",
    )
    route.create()
    ill = ("raise", b"")
    route.write(
        sent(b"x", b'"first"'),
        sent(b"x", b'"its twin"'),
        b'{"order": {"id": "x"}}',  # the same text, but of another source
        b'{"order": {"id": "x"}, "twin": 1}',
        b'{"order": {"id": 17}}',
        b'{"order": {"id": "17"}, "twin": 1}',
        b'{"order": {}}',
        b'{"order": {}}',
        b"not JSON",
        sent(b"p", b'"ill"', ill),  # 9: owner of p becomes a dead letter
        sent(b"p", b'"twin of the ill"'),
        sent(b"p", b'"replayed"', ("hapax-replay-of", f"{route.source}/0/9".encode())),
        sent(b"x", b'"replay of a stranger"', ("hapax-replay-of", b"other/0/1")),
        sent(b"q", b'"replay of nothing"', ("hapax-replay-of", b"nonsense")),
        sent(b"r", b'"beyond all types"', ("hapax-replay-of", b"t/99999999999/1")),
        sent(b"s", b'"of ours, beyond"', ("hapax-replay-of", f"{route.source}/0/{2**63}".encode())),
    )
    yield Done(route, route.run_to_end())
    route.close()


@pytest.mark.row("R10")
def test_twins_are_dropped_within_their_id_source_and_nothing_else_is(identified):
    assert values(identified.route.outputs()) == [
        b'"first"',
        b'{"order": {"id": "x"}}',
        b'{"order": {"id": 17}}',
        b'{"order": {}}',
        b'{"order": {}}',
        b'"replayed"',
    ]
    assert identified.route.committed() == {0: 16}


def test_outputs_carry_the_id_that_was_found(identified):
    ids = [header(record, "hapax-id") for record in identified.route.outputs()]
    no_id = [f"{identified.route.source}/0/{offset}" for offset in (6, 7)]
    assert ids == ["x", "x", "17", *no_id, "p"]


def test_what_cannot_be_identified_is_a_dead_letter_that_says_why(identified):
    dead = {source(record): header(record, "hapax-error") for record in identified.route.dead()}
    assert dead.keys() == {8, 9, 12, 13, 14, 15}
    assert "JSON" in dead[8]
    assert "the record says so" in dead[9]
    assert "hapax-replay-of must name a record of HAPAX_INPUT__TOPICS" in dead[12]
    for offset in (13, 14, 15):
        assert "hapax-replay-of must be topic/partition/offset" in dead[offset]


def test_twins_and_records_without_id_are_counted(identified):
    assert identified.sum("duplicates") == 4
    # Two without an id, one whose id could not be told, four replays of what is no record of ours.
    assert identified.sum("without_id") == 7


def test_a_replay_does_not_carry_the_marks_of_its_death(identified):
    names = [name for name, _ in identified.outputs_of(11)[0].headers]
    assert names == ["message-id", "hapax-id", "hapax-source"]


def test_a_key_that_is_an_id_drops_twins_and_no_key_drops_nothing(sandbox, tmp_path_factory):
    route = PipelineUnderTest(
        sandbox,
        tmp_path_factory.mktemp("keyed"),
        DEDUP__REDIS_URL=sandbox.redis_url,
        DEDUP__ID="key",
    )
    route.create()
    keys = (b"k", b"k", None, None, b"", b"", b"\xff\x00", b"\xff\x00", b"l")
    route.write(*(Given(b"%d" % number, key) for number, key in enumerate(keys)))
    route.run_to_end()
    assert values(route.outputs()) == [b"0", b"2", b"3", b"4", b"5", b"6", b"8"]


BATCH, BATCHES = 50, 60


@pytest.mark.row("R10")
def test_under_a_backlog_the_first_of_two_records_with_one_id_has_the_effect(sandbox, tmp_path):
    """The second stands in the next batch, whose claim is under way at the same time."""
    route = PipelineUnderTest(
        sandbox,
        tmp_path,
        DEDUP__REDIS_URL=sandbox.redis_url,
        DEDUP__ID="header:message-id",
        TRANSACTION__RECORDS_MAX=str(BATCH),
    )
    route.create()
    last: list[bytes] = []
    ids: list[bytes] = []
    for number in range(BATCHES):
        twins = last[::5]
        last = [b"%d/%d" % (number, at) for at in range(BATCH - len(twins))]
        ids += last
        route.write(
            *(sent(each, each) for each in last), *(sent(each, each + b" again") for each in twins)
        )
    route.run_to_end()
    assert values(route.outputs()) == ids
    route.close()
