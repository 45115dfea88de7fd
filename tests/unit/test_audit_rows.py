from typing import Any

import pytest

from hapax import Output, Record, RetryLater
from hapax.core.headers import Retried
from hapax.kafka.read.range_reader import ReadRecord
from hapax.operations.audit.result import Compare, InputBounds, OutputBounds
from hapax.operations.audit.rows import (
    DEAD_SLOT,
    MOVED_ON,
    NOWHERE,
    POISON,
    WAITING,
    EffectRows,
    InputRow,
    InputRows,
    id_hash,
    number_of,
)
from hapax.processing.retry_later import Retrying, RetryTopic
from hapax.processing.transform import Transformer
from tests.kit.audited import judged_here, scope_of

PLACES = {("in", 0): 0, ("in", 1): 1}


def asked(
    *records: Record,
    answer: object = None,
    known: bool = True,
    compare: Compare = Compare.VALUES,
    claimed: bool = True,
    unreadable: tuple[int, ...] = (),
) -> list[InputRow]:
    def transform(_record: Record) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    rows = InputRows(
        PLACES,
        ids=("header:message-id", "json:/id"),
        claimed=claimed,
        transformer=Transformer(transform, 3) if known else None,  # type: ignore[arg-type]
        output_topic="out",
        compare=compare,
    )
    return rows.rows([ReadRecord(one, at not in unreadable) for at, one in enumerate(records)])


def given(offset: int = 0, value: bytes = b"{}", **headers: bytes) -> Record:
    named = tuple((name.replace("_", "-"), text) for name, text in headers.items())
    return Record("in", 1, offset, b"k", value, named)


def effect(
    value: bytes | None,
    topic: str = "out",
    compare: Compare = Compare.VALUES,
    **headers: bytes | None,
) -> Any:
    named = tuple((name.replace("_", "-"), text) for name, text in headers.items())
    rows = EffectRows(PLACES, [5, 5], app="app", compare=compare)
    return rows.row(Record(topic, 0, 77, b"k", value, named))


def content(row: Any) -> int:
    return int(row.content)


def test_what_is_due_has_the_content_of_what_was_written():
    (row,) = asked(given(9), answer=[Output(b"a"), Output(b"b", topic="eu")])
    first = effect(b"a", hapax_source=b"in/1/9", hapax_part=b"1/2")
    second = effect(b"b", topic="eu", hapax_source=b"in/1/9", hapax_part=b"2/2")
    assert (row.outputs, row.content) == (2, content(first) + content(second))
    assert row.topics == "eu"
    assert (first.place, first.offset, first.slot, first.parts, first.at) == (1, 9, 1, 2, 77)


@pytest.mark.parametrize(
    "other",
    [
        effect(b"b", hapax_source=b"in/1/9"),
        effect(None, hapax_source=b"in/1/9"),
        effect(b"", hapax_source=b"in/1/9"),
        effect(b"a", topic="eu", hapax_source=b"in/1/9"),
        effect(b"a", hapax_source=b"in/1/9", hapax_part=b"2/2"),
    ],
)
def test_another_value_topic_or_slot_and_parts_that_change_places_are_another_content(other):
    right = effect(b"a", hapax_source=b"in/1/9")
    assert content(other) != content(right)
    (row,) = asked(given(), answer=[Output(b"a"), Output(b"b")])
    (swapped,) = asked(given(), answer=[Output(b"b"), Output(b"a")])
    assert row.content != swapped.content


def test_a_failure_asks_for_a_dead_letter_that_holds_the_record():
    (row,) = asked(given(9, b"bad"), answer=ValueError("no"), claimed=False)
    dead = effect(b"bad", "dead", hapax_source=b"in/1/9", hapax_error=b"no", hapax_app=b"app")
    assert (dead.slot, dead.parts) == (DEAD_SLOT, 1)
    assert (row.outputs, row.content) == (POISON, dead.content)


def test_poison_of_the_identity_and_unreadable_headers_ask_for_a_dead_letter():
    rows = asked(given(0, b"no json"), given(1, message_id=b"1"), unreadable=(1,))
    assert [row.outputs for row in rows] == [POISON, POISON]
    assert [row.id for row in rows] == [None, None]


def test_without_a_transform_nothing_is_known_and_counts_alone_compare_no_content():
    (row,) = asked(given(message_id=b"1"), known=False)
    assert (row.outputs, row.content) == (None, None)
    (row,) = asked(given(), answer=Output(b"a"), compare=Compare.COUNTS)
    assert (row.outputs, row.content) == (1, None)
    assert content(effect(b"a", compare=Compare.COUNTS, hapax_source=b"in/0/7")) == 0


def test_ids_count_within_their_source_and_only_where_they_are_claimed():
    header, pointer, none = asked(
        given(0, message_id=b"5"), given(1, b'{"id": "5"}'), given(2, b"{}")
    )
    assert header.id is not None
    assert pointer.id is not None
    assert header.id != pointer.id
    assert header.id[:16] == pointer.id[:16] == id_hash(b"5")
    assert none.id is None
    assert asked(given(0, message_id=b"5"), claimed=False)[0].id is None


def test_a_replay_claims_in_the_name_of_its_original():
    own, replay, foreign, again = asked(
        given(3, message_id=b"5"),
        given(4, message_id=b"5", hapax_replay_of=b"in/0/2"),
        given(5, message_id=b"5", hapax_replay_of=b"in/9/2"),
        given(6, message_id=b"5", hapax_replay_of=b"in/9/2"),
    )
    assert (own.owner, replay.owner) == (number_of(1, 3), number_of(0, 2))
    assert foreign.owner == again.owner < 0


def test_a_replay_of_a_record_of_no_input_is_poison_to_the_service_and_claims_nothing():
    replay, poison = asked(
        given(4, message_id=b"5", hapax_replay_of=b"else/0/2"), given(5, b"not JSON")
    )
    assert (replay.owner, replay.id) == (number_of(1, 4), None)
    assert replay.outputs == poison.outputs


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"hapax_source": b"else/0/1"},
        {"hapax_source": b"in/0/1", "hapax_error": b"no", "hapax_app": b"another"},
    ],
)
def test_what_others_wrote_is_no_effect_of_ours(headers):
    assert effect(b"a", **headers) is None


@pytest.mark.parametrize(
    "source", [b"", b"in/0", b"in/0/x", b"in/9/1", b"in/0/-1", b"\xff/0/1", b"in/0/" + b"9" * 30]
)
@pytest.mark.parametrize("part", [b"", b"0/2", b"3/2", b"a/b", b"1", b"1/" + b"9" * 30])
def test_a_source_that_cannot_be_is_nowhere_and_such_a_part_is_part_of_nothing(source, part):
    row = effect(b"a", hapax_source=source, hapax_part=part)
    assert (row.place, row.offset, row.slot, row.parts) == (NOWHERE, -1, 1, 0)


def test_only_what_names_a_record_that_is_gone_keeps_its_id_and_an_unchecked_output_is_marked():
    there = effect(b"a", hapax_source=b"in/0/5", hapax_id=b"1", hapax_unchecked=b"1")
    gone = effect(b"a", hapax_source=b"in/0/4", hapax_id=b"1")
    assert (there.id, gone.id) == (None, id_hash(b"1"))
    assert there.unchecked


def test_what_waits_stands_for_its_original_until_the_group_is_beyond_it():
    rows = EffectRows(
        PLACES, [5, 5], app="app", compare=Compare.VALUES, passed={("app-retry", 2): 77}
    )

    def row(offset: int, of: str = "in/1/9", move: int = 4) -> Any:
        headers = Retried(
            of=of, timestamp=1, attempt=1, calls=1, move=move, until=1, due=1
        ).encode()
        return rows.row(Record("app-retry", 2, offset, b"k", b"v", tuple(headers)))

    waiting, passed = row(77), row(76)
    assert (waiting.place, waiting.offset, waiting.slot, waiting.parts) == (1, 9, WAITING, 4)
    assert passed.slot == MOVED_ON
    assert row(77, "elsewhere/0/1") is None
    assert rows.row(Record("app-retry", 2, 80, b"k", b"v")) is None


def counts_of(*slots: tuple[int, int]) -> dict[str, int]:
    """Return what a record comes to that asks for one output and has these slots and parts."""
    bounds = InputBounds(topic="in", partition=0, low=0, start=0, until=5, committed=5, end=5)
    lane = OutputBounds(topic="out", partition=0, low=0, settled=9, end=9, high=9)
    scope = scope_of([bounds], [lane], claimed=False, compare=Compare.COUNTS)
    given_ = (0, *InputRow(1, True, number_of(0, 1), None, 1, None, None), None)  # noqa: FBT003
    effects = [
        (0, at, 0, 1, *one, None, False, None, None, None, None) for at, one in enumerate(slots)
    ]
    return {
        name: count
        for name, count in judged_here([given_], effects, scope).inputs[0].counts.items()
        if name != "records"
    }


def test_what_waits_is_no_effect_and_a_move_that_stands_twice_is_one_too_many():
    assert counts_of((MOVED_ON, 1), (WAITING, 2)) == {"waiting": 1}
    assert counts_of((MOVED_ON, 1), (MOVED_ON, 2), (1, 1)) == {"with_outputs": 1, "outputs": 1}
    assert counts_of((WAITING, 2), (WAITING, 2)) == {"waiting": 1, "doubled": 1}
    assert counts_of((WAITING, 2), (MOVED_ON, 2)) == {"waiting": 1, "doubled": 1}


def test_what_a_record_that_asks_for_a_later_try_will_come_to_is_not_known():
    def ask(_record: Record) -> Output:
        raise RetryLater(after="5s")

    rows = InputRows(
        PLACES,
        ids=("key",),
        claimed=True,
        transformer=Transformer(ask, 3, Retrying(topic=RetryTopic("app-retry", frozenset({"in"})))),
        output_topic="out",
        compare=Compare.VALUES,
    )
    (row,) = rows.rows([ReadRecord(given(), readable=True)])
    assert (row.outputs, row.content) == (None, None)
