from collections.abc import Iterable

import pytest

from hapax.core.records import Coordinates, Record
from hapax.demo.judge import (
    DemoEffect,
    DemoInput,
    DemoRecord,
    DemoVerdict,
    as_effect,
    as_given,
    judge,
)

# What each value must become: the upper-case letters of it, one output for each; "?" is poison.
ORDERS: dict[tuple[int, int], tuple[str, str]] = {
    (0, 0): ("a", "A"),
    (0, 1): ("b", "BB"),
    (0, 2): ("poison", "?"),
    (0, 5): ("c", "C"),
    (1, 0): ("a", "A"),  # the same event again, elsewhere
    (1, 1): ("d", "D"),
}
ABORTED = Coordinates("orders", 0, 3)
GIVEN = DemoInput(
    {
        Coordinates("orders", *where): DemoRecord(name.encode(), b"key", value.encode())
        for where, (name, value) in ORDERS.items()
    },
    frozenset({ABORTED}),
)


def expected(value: bytes) -> list[bytes]:
    if value == b"?":
        raise ValueError(value)
    return [bytes([byte]) for byte in value]


def output(
    at: int, source: tuple[int, int], part: str = "1/1", value: str | None = None, topic: str = "o"
) -> DemoEffect:
    name, text = ORDERS[source]
    number = 0 if part == "dead letter" else int(part[0]) - 1
    wanted = text if part == "dead letter" else text[number]
    return DemoEffect(
        Coordinates(topic, 0, at),
        Coordinates("orders", *source),
        part,
        DemoRecord(name.encode(), b"key", (value or wanted).encode()),
    )


def dead(at: int, source: tuple[int, int]) -> DemoEffect:
    return output(at, source, "dead letter", topic="dead")


def right() -> list[DemoEffect]:
    return [
        output(0, (0, 0)),
        output(1, (0, 1), "1/2"),
        output(2, (0, 1), "2/2"),
        output(4, (1, 1)),
        output(7, (0, 5)),
        dead(0, (0, 2)),
    ]


def judged(effects: Iterable[DemoEffect]) -> DemoVerdict:
    return judge(GIVEN, effects, expected)


def anomalies(verdict: DemoVerdict) -> dict[str, int]:
    kinds = {
        "lost": verdict.lost,
        "doubled_by_repeats": verdict.doubled_by_repeats,
        "doubled_by_crashes": verdict.doubled_by_crashes,
        "out_of_order": verdict.out_of_order,
        "wrong": verdict.wrong,
        "from_aborted": verdict.from_aborted,
    }
    found = {kind: count for kind, count in kinds.items() if count}
    assert verdict.exact == (not found)
    assert {kind: len(examples) for kind, examples in verdict.examples.items()} == found
    return found


def test_what_is_right_is_exact_and_counted():
    verdict = judged(right())
    assert anomalies(verdict) == {}
    assert (verdict.records_in, verdict.events) == (6, 5)
    assert (verdict.outputs, verdict.dead_letters) == (5, 1)
    assert verdict.duplicates_removed == 1


def test_either_record_of_an_event_may_have_the_effect():
    effects = right()
    effects[0] = output(0, (1, 0))
    assert anomalies(judged(effects)) == {}


@pytest.mark.parametrize("missing", range(6))
def test_one_missing_output_or_dead_letter_is_a_loss(missing):
    effects = right()
    lost = effects.pop(missing)
    verdict = judged(effects)
    assert anomalies(verdict) == {"lost": 1}
    assert lost.given.id.decode() in verdict.examples["lost"][0]
    assert lost.slot in verdict.examples["lost"][0]


def test_no_output_at_all_is_the_loss_of_every_event_and_removes_nothing():
    verdict = judged([])
    assert verdict.lost == 5
    assert verdict.duplicates_removed == 0


def test_a_record_processed_twice_is_doubled_by_a_crash_and_not_out_of_order():
    assert anomalies(judged([*right(), output(9, (0, 1), "1/2")])) == {"doubled_by_crashes": 1}


def test_an_event_sent_twice_and_processed_twice_is_doubled_by_repeats():
    verdict = judged([output(-1, (1, 0)), *right()])
    assert anomalies(verdict) == {"doubled_by_repeats": 1}
    assert verdict.duplicates_removed == 0


def test_a_second_dead_letter_of_one_poison_is_doubled():
    assert anomalies(judged([*right(), dead(1, (0, 2))])) == {"doubled_by_crashes": 1}


def test_an_output_behind_one_of_a_later_record_is_out_of_order():
    effects = right()
    effects[0], effects[4] = effects[4], effects[0]
    verdict = judged(effects)
    assert verdict.out_of_order >= 1
    assert verdict.lost == verdict.doubled == verdict.wrong == 0
    assert not verdict.exact


def test_parts_of_one_record_that_swap_are_out_of_order():
    effects = right()
    effects[1], effects[2] = effects[2], effects[1]
    assert anomalies(judged(effects)) == {"out_of_order": 1}


def test_dead_letters_keep_their_order_too():
    poison = [Coordinates("orders", 0, offset) for offset in (1, 2)]
    given = DemoInput(
        {where: DemoRecord(b"%d" % where.offset, None, b"?") for where in poison}, frozenset()
    )
    effects = [
        DemoEffect(Coordinates("dead", 0, at), where, "dead letter", given.visible[where])
        for at, where in enumerate(reversed(poison))
    ]
    assert anomalies(judge(given, effects, expected)) == {"out_of_order": 1}


def test_records_of_different_input_partitions_need_no_order():
    effects = right()
    effects[3], effects[4] = effects[4], effects[3]
    assert anomalies(judged(effects)) == {}


def test_another_value_is_wrong_and_the_event_lost():
    effects = right()
    effects[0] = output(0, (0, 0), value="Z")
    assert anomalies(judged(effects)) == {"lost": 1, "wrong": 1}


@pytest.mark.parametrize(
    "changed",
    [
        DemoRecord(b"z", b"key", b"A"),
        DemoRecord(b"a", b"other", b"A"),
        DemoRecord(b"a", None, b"A"),
    ],
)
def test_an_output_with_another_id_or_key_is_wrong(changed):
    effects = right()
    effects[0] = effects[0]._replace(given=changed)
    assert anomalies(judged(effects)) == {"lost": 1, "wrong": 1}


def test_a_dead_letter_of_a_sound_record_is_wrong():
    assert anomalies(judged([*right(), dead(1, (0, 0))])) == {"wrong": 1}


def test_an_output_of_poison_is_wrong():
    assert anomalies(judged([*right(), output(9, (0, 2))])) == {"wrong": 1}


def test_an_output_without_a_source_is_wrong():
    assert anomalies(judged([*right(), right()[0]._replace(source=None)])) == {"wrong": 1}


def test_an_output_from_an_offset_that_holds_no_record_is_wrong():
    stray = right()[0]._replace(source=Coordinates("orders", 0, 4))
    assert anomalies(judged([*right(), stray])) == {"wrong": 1}


def test_an_effect_of_an_aborted_record_is_told_apart():
    stray = right()[0]._replace(source=ABORTED)
    assert anomalies(judged([*right(), stray])) == {"from_aborted": 1}


def test_parts_that_come_from_two_records_of_an_event_are_wrong():
    pair = [Coordinates("orders", partition, 0) for partition in (0, 1)]
    given = DemoInput(dict.fromkeys(pair, DemoRecord(b"b", None, b"BB")), frozenset())
    torn = [
        DemoEffect(Coordinates("o", 0, at), where, f"{at + 1}/2", DemoRecord(b"b", None, b"B"))
        for at, where in enumerate(pair)
    ]
    assert anomalies(judge(given, torn, expected)) == {"wrong": 1}
    whole = [one._replace(source=pair[0]) for one in torn]
    assert anomalies(judge(given, whole, expected)) == {}


def test_only_the_first_examples_are_kept():
    verdict = judged([right()[0]._replace(source=None)] * 50)
    assert verdict.wrong == 50
    assert len(verdict.examples["wrong"]) == 5


def test_a_record_is_read_by_its_headers():
    headers = (
        ("message-id", b"a"),
        ("hapax-source", b"orders/3/7"),
        ("hapax-part", b"2/2"),
    )
    record = Record("o", 1, 2, b"k", b"v", headers)
    assert as_given(record) == DemoRecord(b"a", b"k", b"v")
    assert as_effect(record) == DemoEffect(
        Coordinates("o", 1, 2), Coordinates("orders", 3, 7), "2/2", DemoRecord(b"a", b"k", b"v")
    )
    assert as_effect(record, dead=True).slot == "dead letter"


@pytest.mark.parametrize("source", [None, b"", b"orders", b"\xff/1/2", b"orders/x/1"])
def test_a_source_that_cannot_be_read_is_none(source):
    record = Record("o", 1, 2, b"k", b"v", (("hapax-source", source),))
    assert as_effect(record).source is None
    assert as_effect(record).slot == "1/1"
