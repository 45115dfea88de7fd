"""Step 5: claims and results to messages and progress."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, strategies as st

from hapax.cluster.topic_rules import MARGIN_MS, UNLIMITED, TopicRules, amended
from hapax.core.errors import HapaxError
from hapax.core.record_path import Plan
from hapax.core.records import Coordinates, Headers, Message, Output, Record
from hapax.core.results import Failure, Result
from hapax.processing.dead_letters import Replayed, Wanted, dead_letter, is_original, note, replay
from hapax.processing.plan import ERROR_CHARS_MAX, Destinations, Planner

PLANNER = Planner(Destinations("shop", "out", "dead"))


def record(offset: int = 5, *, partition: int = 0, headers: Headers = ()) -> Record:
    return Record("in", partition, offset, b"k", b"v", headers, 1234)


def planned(
    records: Sequence[Record],
    results: Sequence[Result | None],
    ids: Sequence[bytes] = (),
    *,
    unchecked: bool = False,
) -> Plan:
    return PLANNER.plan(
        records, ids or [b""] * len(records), list(results), {}, unchecked=unchecked
    )


def one(output: Output, of: Record | None = None) -> Message:
    (message,) = planned([of or record()], [(output,)]).messages
    return message


def test_what_an_output_does_not_say_comes_from_the_record_and_the_settings():
    message = one(Output(b"x"))
    assert (message.topic, message.key, message.timestamp_ms) == ("out", b"k", 1234)
    assert message.partition == -1
    assert message.value == b"x"
    message = one(Output(b"x", key=b"other", topic="side", timestamp_ms=0, partition=0))
    assert (message.topic, message.key, message.timestamp_ms) == ("side", b"other", 0)
    assert message.partition == 0
    assert one(Output(b"x", key=None)).key is None, "not the same as a key that is not given"


def test_outputs_that_name_no_timestamp_may_have_that_of_writing():
    now = Planner(Destinations("shop", "out", "dead", now=True))
    outputs = (Output(b"a"), Output(b"b", timestamp_ms=0))
    failure = Failure("ValueError", "no", 1)
    messages = now.plan([record(), record(6)], [b"", b""], [outputs, failure], {}).messages
    assert [message.timestamp_ms for message in messages] == [None, 0, 1234]


def test_headers_pass_through_and_an_outputs_own_come_behind_them():
    message = one(Output(b"x", headers=(("b", b"2"),)), record(headers=(("a", b"1"), ("a", None))))
    assert message.headers[:3] == [("a", b"1"), ("a", None), ("b", b"2")]


@pytest.mark.parametrize("event_id", [b"", b"event-1"])
def test_headers_of_a_hapax_before_us_are_replaced_and_cannot_be_forged(event_id):
    old: Headers = (("hapax-id", b"old"), ("hapax-source", b"x/0/0"), ("hapax-part", b"1/2"))
    output = Output(b"x", headers=(("hapax-source", b"forged"),))
    (message,) = planned([record(headers=old)], [(output,)], [event_id]).messages
    assert message.headers == [("hapax-id", event_id or b"in/0/5"), ("hapax-source", b"in/0/5")]


def test_parts_are_numbered_only_when_there_are_several_and_do_not_share_their_headers():
    first, second = planned([record()], [(Output(b"x"), Output(b"y"))]).messages
    assert [dict(m.headers)["hapax-part"] for m in (first, second)] == [b"1/2", b"2/2"]
    first.headers.append(("more", b""))
    assert ("more", b"") not in second.headers


def test_outputs_made_without_claims_are_marked():
    plan = planned([record(), record(6)], [(Output(b"x"),), Failure("E", "t", 1)], unchecked=True)
    assert [dict(m.headers)["hapax-unchecked"] for m in plan.messages] == [b"1", b"1"]
    assert dict(one(Output(b"x")).headers).keys().isdisjoint({"hapax-unchecked", "hapax-part"})


def test_a_dead_letter_is_the_record_itself_with_its_reason():
    poisoned = record(headers=(("traceparent", b"00-1"), ("hapax-attempts", b"9")))
    plan = planned([poisoned], [Failure("ValueError", "no", 3)], [b"event-1"])
    (message,) = plan.messages
    assert (message.topic, message.key, message.value) == ("dead", b"k", b"v")
    assert (message.timestamp_ms, message.partition) == (1234, -1)
    assert message.headers == [
        ("traceparent", b"00-1"),
        ("hapax-id", b"event-1"),
        ("hapax-source", b"in/0/5"),
        ("hapax-error", b"ValueError: no"),
        ("hapax-attempts", b"3"),
        ("hapax-app", b"shop"),
    ]
    assert plan.failures == {0: Failure("ValueError", "no", 3)}


def test_the_text_of_an_error_is_bounded_and_survives_what_utf8_cannot_say():
    plan = planned([record()], [Failure("E", "\ud800" + "ä" * 5000, 1)])
    text = dict(plan.messages[0].headers)["hapax-error"] or b""
    assert text.startswith(b"E: \\ud800\xc3\xa4")
    assert len(text.decode()) < ERROR_CHARS_MAX + 10


def test_each_message_knows_the_record_it_comes_from_and_others_are_counted():
    results: list[Result | None] = [None, (Output(b"a"), Output(b"b")), (), Failure("E", "", 1)]
    plan = planned([record(n) for n in range(5)], results)  # of a prefix
    assert plan.sources == [1, 1, 3]
    assert (plan.filtered, plan.duplicates) == (1, 1)
    plan = planned([record(1), record(2), record(3)], [(), None, ()])
    assert (plan.filtered, plan.duplicates, list(plan.messages)) == (2, 1, [])


def test_the_source_header_follows_partition_and_topic():
    records = [record(1), record(1, partition=1), Record("other", 1, 1, None, b"")]
    plan = planned(records, [(Output(b""),)] * 3)
    sources = [dict(message.headers)["hapax-source"] for message in plan.messages]
    assert sources == [b"in/0/1", b"in/1/1", b"other/1/1"]


answers = st.one_of(
    st.none(),
    st.builds(Failure, st.just("E"), st.text(max_size=5), st.just(1)),
    st.lists(st.builds(Output, st.binary(max_size=3)), max_size=3).map(tuple),
)


@given(st.lists(st.tuples(st.integers(0, 2), answers), max_size=40))
def test_every_record_has_exactly_one_fate_and_order_per_partition_is_kept(given_results):
    records = [
        record(offset, partition=partition) for offset, (partition, _) in enumerate(given_results)
    ]
    plan = planned(records, [result for _, result in given_results])
    written = [dict(message.headers)["hapax-source"] or b"" for message in plan.messages]
    by_topic = {message: plan.messages[i].topic for i, message in enumerate(written)}
    assert len(set(written)) + plan.filtered + plan.duplicates == len(records)
    assert sum(topic == "dead" for topic in by_topic.values()) == len(plan.failures)
    for source, (_, result) in zip(records, given_results, strict=True):
        assert result is None or isinstance(result, tuple | Failure)
        parts = 1 if isinstance(result, Failure) else len(result or ())
        assert written.count(str(source.coordinates).encode()) == parts
    for partition in range(3):
        mine = [w for w in written if w.startswith(b"in/%d/" % partition)]
        assert mine == sorted(mine, key=lambda w: int(w.rsplit(b"/", 1)[1]))


FAILED = Record("in", 3, 7, b"k", b"\xff\x00", (("trace", b"t"), ("trace", None)), 1_000)


def letter_of(record: Record, *, at: int = 0) -> Record:
    planner = Planner(Destinations("app", "out", "dead"))
    failure = Failure("ValueError", "no: number", 3)
    (message,) = planner.plan([record], [b"e-1"], [failure], {}).messages
    headers = tuple(message.headers)
    assert message.timestamp_ms is not None
    return Record("dead", 0, at, message.key, message.value, headers, message.timestamp_ms)


def as_record(message: Any, at: int, timestamp_ms: int = 0) -> Record:
    return Record("dead", 0, at, message.key, message.value, tuple(message.headers), timestamp_ms)


def known(record: Record) -> Any:
    one = dead_letter(record)
    assert one is not None
    return one


def test_a_dead_letter_tells_what_failed_and_its_replay_is_the_record_and_names_its_original():
    one = known(letter_of(FAILED))
    assert (one.source, one.original) == (FAILED.coordinates, FAILED.coordinates)
    assert (one.event_id, one.reason, one.error) == (b"e-1", "ValueError", "ValueError: no: number")
    assert (one.attempts, one.app, one.readable) == (3, "app", True)
    message = replay(one, ["in"])
    assert (message.topic, message.partition, message.timestamp_ms) == ("in", 3, 1_000)
    assert (message.key, message.value) == (FAILED.key, FAILED.value)
    assert message.headers == [*FAILED.headers, ("hapax-replay-of", b"in/3/7")]
    again = Record("in", 3, 90, b"k", b"v", tuple(message.headers))  # it fails again
    second = known(letter_of(again, at=5))
    assert (second.source, second.original) == (Coordinates("in", 3, 90), FAILED.coordinates)
    assert replay(second, ["in"]).headers[-1] == ("hapax-replay-of", b"in/3/7")


def test_a_replay_of_a_made_up_topic_names_its_own_record():
    stranger = Record("in", 3, 7, b"k", b"v", (("hapax-replay-of", b"made-up/0/1"),))
    assert replay(known(letter_of(stranger)), ["in"]).headers == [("hapax-replay-of", b"in/3/7")]


def test_headers_of_strangers_make_nothing_raise():
    headers = (
        ("hapax-error", b"\xff"),
        ("hapax-source", b"in/0/1"),
        ("hapax-attempts", b"9" * 5_000),
    )
    one = known(Record("dead", 0, 0, None, b"v", headers))
    assert (one.error, one.attempts) == ("\\xff", 999_999_999)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("hapax-source", b"in/0/1"),),
        (("hapax-error", b"x"),),
        (("hapax-error", b"x"), ("hapax-source", b"nonsense")),
        (("hapax-error", b"x"), ("hapax-source", b"\xff/0/1")),
    ],
)
def test_what_no_hapax_wrote_is_no_dead_letter(headers):
    assert dead_letter(Record("dead", 0, 0, None, b"v", headers)) is None


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        (Wanted(), True),
        (Wanted(reason="valueerr"), True),
        (Wanted(reason="NO: num"), True),
        (Wanted(reason="KeyError"), False),
        (Wanted(since_ms=1_000, until_ms=1_001), True),
        (Wanted(since_ms=1_001), False),
        (Wanted(until_ms=1_000), False),
        (Wanted(event_id=b"e-1"), True),
        (Wanted(event_id=b"e"), False),
        (Wanted(source="in"), True),
        (Wanted(source="in/3"), True),
        (Wanted(source="in/3/7"), True),
        (Wanted(source="in/3/70"), False),
        (Wanted(source="i"), False),
        (Wanted(source="in", reason="KeyError"), False),
    ],
)
def test_all_that_is_asked_for_must_hold(wanted, *, meant):
    assert wanted.has(known(letter_of(FAILED))) is meant


def test_a_note_names_every_dead_letter_that_was_replayed_and_no_other():
    message = note("dead", 0, [9, 3, 4, 5], app="app", now_ms=5)
    assert (message.topic, message.partition, message.timestamp_ms) == ("dead", 0, 5)
    replayed = Replayed()
    assert replayed.take(as_record(note("dead", 1, [2], app="app", now_ms=5), 19))
    assert replayed.take(as_record(message, 20))
    assert dead_letter(as_record(message, 20)) is None
    letters = [dead_letter(letter_of(FAILED, at=at)) for at in range(12)]
    assert [at for at, one in enumerate(letters) if one and one in replayed] == [3, 4, 5, 9]
    assert not replayed.take(letter_of(FAILED))


def test_a_note_of_a_huge_stretch_costs_no_memory_and_counts():
    replayed = Replayed()
    value = b'{"partition": 0, "offsets": [[0, 4611686018427387904]]}'
    replayed.take(Record("dead", 0, 1, None, value, (("hapax-replayed", b"1"),)))
    assert known(letter_of(FAILED, at=3)) in replayed


@pytest.mark.parametrize("value", [None, b"", b"[]", b'{"partition": 0}', b"\xff"])
def test_a_note_that_cannot_be_read_stops_every_replay(value):
    with pytest.raises(HapaxError, match="dead/0/8"):
        Replayed().take(Record("dead", 0, 8, None, value, (("hapax-replayed", b"1"),)))


NOW_MS, HOUR_MS = 1_800_000_000_000, 3_600_000
BOTH = TopicRules(compacted=True, before_ms=HOUR_MS, after_ms=HOUR_MS)


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        ({}, TopicRules()),
        ({"cleanup.policy": "delete"}, TopicRules()),
        ({"cleanup.policy": "compact,delete"}, TopicRules(compacted=True)),
        ({"message.timestamp.after.max.ms": "5"}, TopicRules(after_ms=5)),
        ({"message.timestamp.before.max.ms": "0"}, TopicRules(before_ms=0)),
        ({"message.timestamp.difference.max.ms": "7"}, TopicRules(before_ms=7, after_ms=7)),
        (
            {"message.timestamp.difference.max.ms": "7", "message.timestamp.after.max.ms": "9"},
            TopicRules(before_ms=7, after_ms=9),
        ),
        (
            {"message.timestamp.after.max.ms": "5", "message.timestamp.type": "LogAppendTime"},
            TopicRules(),
        ),
    ],
)
def test_rules_are_read_from_the_settings_of_a_topic(settings, rules):
    assert TopicRules.of(settings) == rules


@pytest.mark.parametrize(
    ("key", "timestamp_ms", "words"),
    [
        (b"", NOW_MS, None),
        (b"k", None, None),
        (b"k", -1, None),  # without a timestamp
        (None, NOW_MS, "no key, and topic out is compacted"),
        (b"k", 0, "message.timestamp.before.max.ms=3600000"),
        (b"k", -2, "message.timestamp.before.max.ms=3600000"),
        (b"k", NOW_MS * 1000, "message.timestamp.after.max.ms=3600000"),
        (b"k", NOW_MS + HOUR_MS + MARGIN_MS, None),  # within what clocks may differ
        (b"k", NOW_MS + HOUR_MS + MARGIN_MS + 1, "message.timestamp.after.max.ms"),
        (b"k", NOW_MS - HOUR_MS - MARGIN_MS, None),
        (b"k", NOW_MS - HOUR_MS - MARGIN_MS - 1, "message.timestamp.before.max.ms"),
    ],
)
def test_a_refusal_names_the_property_of_the_topic(key, timestamp_ms, words):
    why = BOTH.refusal("out", key, timestamp_ms, NOW_MS)
    assert (why is None) is (words is None)
    assert (words or "") in (why or "")


def test_the_sentence_is_one_object_and_a_topic_without_limits_refuses_nothing():
    first, second = (BOTH.refusal("out", b"k", time, NOW_MS) for time in (0, 1))
    assert first is second
    assert TopicRules().refusal("out", None, UNLIMITED, NOW_MS) is None


@dataclass
class Letter:
    key: bytes | None
    timestamp_ms: int
    truncated: bytes = b""

    def amended(self, rules: TopicRules) -> Message:
        headers: list[tuple[str, bytes | None]] = [
            ("hapax-source", b"in/0/7"),
            ("hapax-error", b"ValueError: no"),
            ("hapax-attempts", b"1"),
            ("hapax-app", b"app"),
        ]
        if self.truncated:
            headers.append(("hapax-truncated", self.truncated))
        whole = Message("dead", b"v", self.key, -1, self.timestamp_ms, headers)
        return amended(whole, rules, NOW_MS)


@pytest.mark.parametrize("key", [b"k", b"", None])
@pytest.mark.parametrize("timestamp_ms", [NOW_MS, 0, -5000, NOW_MS * 1000])
def test_an_amended_dead_letter_is_accepted_and_is_read_as_the_record_was(key, timestamp_ms):
    message = Letter(key, timestamp_ms).amended(BOTH)
    assert BOTH.refusal("dead", message.key, message.timestamp_ms, NOW_MS) is None
    assert message.key == (b"in/0/7" if key is None else key)
    written_ms = NOW_MS if message.timestamp_ms is None else message.timestamp_ms
    one = known(as_record(message, 1, written_ms))
    assert (one.record.key, one.record.timestamp_ms) == (key, timestamp_ms)
    assert (one.record.value, one.truncated) == (b"v", "")


def test_what_was_cut_before_stays_named_and_the_original_is_recognised():
    message = Letter(b"k", 5, b"value=3").amended(BOTH)
    assert dict(message.headers)["hapax-truncated"] == b"value=3,timestamp=5"
    one = known(as_record(message, 1, NOW_MS))
    assert is_original(one, Record("in", 0, 7, b"k", b"abc", (), 5))
    assert not is_original(one, Record("in", 0, 7, b"k", b"abc", (), NOW_MS))
    assert not is_original(one, Record("in", 0, 7, b"other", b"abc", (), 5))
