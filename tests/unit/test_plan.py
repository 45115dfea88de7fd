"""Step 5: claims and results to messages and progress."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from hapax.core.plan import ERROR_CHARS_MAX, Destinations, Plan, Planner
from hapax.core.ports import Message
from hapax.core.records import Headers, Output, Record
from hapax.core.transform import Failure, Result

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


def test_what_an_output_says_is_taken():
    message = one(Output(b"x", key=b"other", topic="side", timestamp_ms=0, partition=0))
    assert (message.topic, message.key, message.timestamp_ms) == ("side", b"other", 0)
    assert message.partition == 0


def test_outputs_that_name_no_timestamp_may_have_that_of_writing():
    now = Planner(Destinations("shop", "out", "dead", now=True))
    outputs = (Output(b"a"), Output(b"b", timestamp_ms=0))
    failure = Failure("ValueError", "no", 1)
    messages = now.plan([record(), record(6)], [b"", b""], [outputs, failure], {}).messages
    assert [message.timestamp_ms for message in messages] == [None, 0, 1234]


def test_no_key_is_not_the_same_as_a_key_that_is_not_given():
    assert one(Output(b"x", key=None)).key is None
    assert one(Output(b"x")).key == b"k"


def test_headers_pass_through_and_an_outputs_own_come_behind_them():
    message = one(Output(b"x", headers=(("b", b"2"),)), record(headers=(("a", b"1"), ("a", None))))
    assert message.headers[:3] == [("a", b"1"), ("a", None), ("b", b"2")]


def test_headers_of_a_hapax_before_us_are_replaced_and_cannot_be_forged():
    old: Headers = (("hapax-id", b"old"), ("hapax-source", b"x/0/0"), ("hapax-part", b"1/2"))
    message = one(Output(b"x", headers=(("hapax-source", b"forged"),)), record(headers=old))
    assert message.headers == [("hapax-id", b"in/0/5"), ("hapax-source", b"in/0/5")]


def test_the_id_in_the_header_is_the_events_own_when_it_has_one():
    (message,) = planned([record()], [(Output(b"x"),)], [b"event-1"]).messages
    assert message.headers == [("hapax-id", b"event-1"), ("hapax-source", b"in/0/5")]


def test_parts_are_numbered_only_when_there_are_several():
    plan = planned([record()], [(Output(b"x"), Output(b"y"))])
    assert [dict(m.headers)["hapax-part"] for m in plan.messages] == [b"1/2", b"2/2"]
    assert "hapax-part" not in dict(one(Output(b"x")).headers)


def test_parts_do_not_share_their_headers():
    first, second = planned([record()], [(Output(b"x"), Output(b"y"))]).messages
    first.headers.append(("more", b""))
    assert ("more", b"") not in second.headers


def test_outputs_made_without_claims_are_marked():
    plan = planned([record(), record(6)], [(Output(b"x"),), Failure("E", "t", 1)], unchecked=True)
    assert [dict(m.headers)["hapax-unchecked"] for m in plan.messages] == [b"1", b"1"]
    assert "hapax-unchecked" not in dict(one(Output(b"x")).headers)


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


def test_filtered_and_duplicate_records_are_counted_and_write_nothing():
    plan = planned([record(1), record(2), record(3)], [(), None, ()])
    assert (plan.filtered, plan.duplicates, plan.messages) == (2, 1, [])


def test_each_message_knows_the_record_it_comes_from():
    results: list[Result | None] = [None, (Output(b"a"), Output(b"b")), (), Failure("E", "", 1)]
    plan = planned([record(n) for n in range(4)], results)
    assert plan.sources == [1, 1, 3]


def test_results_of_a_prefix_plan_the_prefix():
    plan = planned([record(1), record(2)], [(Output(b"a"),)])
    assert plan.sources == [0]


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
