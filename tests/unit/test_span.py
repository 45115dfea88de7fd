"""What the words of a span mean, and where its records stop."""

import pytest
from confluent_kafka import KafkaError

from hapax.cluster import group_start
from hapax.cluster.partition_offsets import LogOffsets
from hapax.core.offset_commit import CommittedMetadata, text_of
from hapax.core.span import Span, SpanWords, offsets_of, other_span, time_of
from hapax.kafka.consume.source import KafkaSource
from hapax.settings import load_settings
from tests.kit.consumers import FakeConsumer, Undecodable, event, message, source, take
from tests.unit.test_settings import REQUIRED

Patch = pytest.MonkeyPatch
P0, P1 = ("in", 0), ("in", 1)
EOF = KafkaError._PARTITION_EOF
WORDS = SpanWords("earliest", "latest")


def test_two_spellings_of_a_time_are_one_span_and_an_age_is_one_whenever_it_is_said():
    one = SpanWords("2026-11-01T00:00:00Z", "2026-11-20T12:00Z")
    assert one.name == SpanWords("2026-11-01T00:00+00:00", "2026-11-20T13:00+01:00").name
    assert one.name != SpanWords("2026-11-01T00:00:00Z", "2026-11-20T12:01Z").name
    assert SpanWords("7d").name == SpanWords("168h").name != SpanWords("8d").name
    assert SpanWords("a/0/1,a/1/2").name == SpanWords("a/1/2, a/0/1").name


def test_words_become_times_and_offsets():
    assert time_of("2h", 10_000_000) == 2_800_000
    assert time_of("1970-01-01T00:00:01Z", 5) == 1000
    assert time_of("latest", 5) is None
    assert offsets_of("a.b/0/17, c/3/0") == {("a.b", 0): 17, ("c", 3): 0}
    assert offsets_of("2026-11-01") is None
    with pytest.raises(ValueError, match="a/0 is named twice"):
        offsets_of("a/0/1,a/0/2")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (SpanWords("earliest", "2030-01-01"), "lies in the future"),
        (SpanWords("2030-01-01", "latest"), "lies in the future"),
        (SpanWords("2026-11-02", "2026-11-01"), "is not before"),
        (SpanWords("1d", "2d"), "is not before"),
    ],
)
def test_a_span_that_cannot_be_is_refused_in_a_sentence(words, said):
    now_ms = 1_795_000_000_000
    [problem] = words.problems(now_ms)
    assert said in problem
    assert SpanWords("2d", "1d").problems(now_ms) == []


def test_the_span_stands_beside_every_offset_that_is_committed_and_damage_counts_as_none():
    span = Span(3, 900, "abc")
    text = CommittedMetadata(topic_id="T", began=2, deaths=1, until=7, span=span).encode()
    assert text == "hapax topic=T began=2 span=3:900:abc deaths=1 until=7"
    assert CommittedMetadata.decode(text).span == span
    for word in ("", "3", "3:x:abc", "-1:4:abc"):
        assert CommittedMetadata.decode(f"hapax span={word}").span is None


def test_offsets_of_no_span_or_of_another_are_told_from_those_of_added_partitions():
    span = Span(0, 9, WORDS.name)
    assert other_span("app", {}, WORDS.name) is None
    assert other_span("app", {P0: span, P1: None}, WORDS.name) is None
    assert "no span began" in str(other_span("app", {P0: None}, WORDS.name))
    assert "in/0: 0 to 9" in str(other_span("app", {P0: span}, "other"))


def test_done_counts_what_lies_within():
    span = Span(10, 20, "n")
    assert [span.done(at) for at in (0, 10, 15, 20, 99)] == [0, 0, 5, 10, 10]


def test_settings_say_whether_there_is_a_span_and_whether_the_run_ends():
    plain = load_settings(REQUIRED)
    assert (plain.start, plain.at_ends, plain.bounded) == ("earliest", False, False)
    begun = load_settings(REQUIRED | {"HAPAX_INPUT__START": "7d"})
    assert (begun.start, begun.bounded) == (SpanWords("7d"), False)
    ended = load_settings(REQUIRED | {"HAPAX_INPUT__END": "LATEST"})
    assert (ended.start, ended.at_ends) == (WORDS, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"END": "soon"}, "choose one of latest, or write an age"),
        ({"START": "latest", "END": "latest"}, "leaves nothing before HAPAX_INPUT__END"),
        ({"START": "refuse", "END": "1d"}, "leaves nothing before HAPAX_INPUT__END"),
        ({"START": "a/0/1,a/0/1"}, "named twice"),
    ],
)
def test_settings_of_no_span_are_refused(given, said):
    with pytest.raises(Exception, match="HAPAX_INPUT__") as raised:
        load_settings(REQUIRED | {f"HAPAX_INPUT__{name}": text for name, text in given.items()})
    assert said in str(raised.value)


@pytest.mark.parametrize(("name", "text"), [("START", "7d"), ("END", "latest")])
def test_a_dataframe_has_no_span(name, text):
    dataframe = {
        "HAPAX_ENGINE": "spark",
        "HAPAX_SPARK__DATAFRAME": "shop.revenue:pipeline",
        "HAPAX_SPARK__CHECKPOINT": "/durable",
    }
    with pytest.raises(Exception, match=f"HAPAX_INPUT__{name}={text} does not go with"):
        load_settings(REQUIRED | dataframe | {f"HAPAX_INPUT__{name}": text})


def bounded(patch: Patch, **stops: int) -> tuple[KafkaSource, FakeConsumer]:
    """Return a source whose partitions 0 and 1 stop there, the group being at 0."""
    kafka, consumer, _ = source(patch, start=WORDS)
    for where, stop in zip((P0, P1), (stops["p0"], stops.get("p1", 100)), strict=True):
        consumer.offsets[where] = 0
        consumer.words[where] = CommittedMetadata(span=Span(0, stop, WORDS.name)).encode()
    return kafka, consumer


@pytest.mark.parametrize("is_control", [False, True])
def test_nothing_beyond_the_stop_is_handed_out_and_the_partition_is_held(monkeypatch, is_control):
    if is_control:
        cut = "hapax.kafka.consume.span_stops.SpanStops.cut"
        monkeypatch.setattr(cut, lambda _self, batch: batch)
    kafka, consumer = bounded(monkeypatch, p0=5)
    consumer.queue = [message(n) for n in (3, 4, 5, 6)] + [message(7, partition=1)]
    batch = kafka.take(10, 0.1)
    beyond = [5, 6] if is_control else []
    assert [record.offset for record in batch.records] == [3, 4, *beyond, 7]
    assert (batch.first, batch.next) == ({P0: 3, P1: 7}, {P0: 5 + len(beyond), P1: 8})
    assert consumer.paused == (set() if is_control else {P0})


@pytest.mark.parametrize("beyond", [message(9), event(EOF, 8)])
@pytest.mark.parametrize("before", [[message(1)], []])
def test_behind_a_hole_or_an_end_of_the_log_across_the_stop_progress_is_the_stop_itself(
    monkeypatch, before, beyond
):
    kafka, _consumer = bounded(monkeypatch, p0=5)
    batch = take(kafka, *before, beyond)
    assert [record.offset for record in batch.records] == [1] * len(before)
    assert (batch.first, batch.next) == ({P0: 1} if before else {}, {P0: 5})


def test_what_is_read_again_from_before_the_stop_is_delivered_again(monkeypatch):
    kafka, consumer = bounded(monkeypatch, p0=5)
    take(kafka, message(4), message(5))
    assert consumer.paused == {P0}
    kafka.rewind({P0: 4})
    assert consumer.paused == set()
    assert [record.offset for record in take(kafka, message(4), message(5)).records] == [4]


def test_where_workers_are_further_already_nothing_goes_back_to_the_stop(monkeypatch):
    kafka, consumer = bounded(monkeypatch, p0=5)
    consumer.offsets[P0] = 40
    batch = take(kafka, message(40), message(41))
    assert (list(batch.records), batch.next) == ([], {P0: 40})


def test_an_unreadable_record_keeps_its_reason_when_others_are_cut(monkeypatch):
    kafka, _consumer = bounded(monkeypatch, p0=5)
    assert list(take(kafka, message(6), Undecodable(message(3, partition=1))).unreadable) == [0]


OURS, COUNTED, FOREIGN = (
    CommittedMetadata(topic_id="t"),
    CommittedMetadata(topic_id="t", began=2),
    CommittedMetadata(),
)


@pytest.mark.parametrize(
    ("number", "beside", "placed"),
    [
        (0, [], True),  # a new group
        (1, [FOREIGN], True),  # of another client, which leaves none where it read nothing
        (1, [COUNTED], True),  # begun, and deleted by hand
        (2, [COUNTED], False),  # added since
        (1, [COUNTED, FOREIGN], True),
        (1, [OURS], False),
        (1, [OURS, FOREIGN], False),
    ],
)
def test_start_decides_for_what_no_process_of_hapax_has_begun(number, beside, *, placed):
    assert group_start.by_start(number, beside) is placed


@pytest.mark.parametrize(
    ("instance", "warned"),
    [
        ("orders-7d9f8b6c5d-x2xz9", True),
        ("orders-eu-5bcdf677d9-zx9kl", True),
        ("orders-6c8f5b7d4-4w2qt", True),
        ("orders-0", False),
        ("orders-12", False),
        ("ip-10-0-3-17", False),
        ("orders-backfill-green", False),
        ("orders-workers-lhrs1", False),
    ],
)
def test_a_static_name_that_is_new_with_each_start_is_warned_of(instance, *, warned):
    assert (
        "HAPAX_GROUP__MEMBERSHIP=dynamic" in group_start.new_with_each_start(instance)
    ) is warned


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({0: FOREIGN}, "2 of 3 partitions have no offset, they begin at HAPAX_INPUT__START=latest"),
        ({0: OURS}, "they begin at their first record: they were added"),
        ({0: COUNTED}, "=latest, the others at their first record: they were added"),
    ],
)
def test_partitions_without_an_offset_are_counted_and_placed_in_words(known, words):
    assert group_start.partly_begun([("in", 1), ("in", 2)], known, "latest").endswith(words)


@pytest.mark.parametrize(
    ("proposed", "start", "same"),
    [(5, "earliest", True), (6, "earliest", False), (9, "latest", True), (9, "30d", False)],
)
def test_what_start_leads_to_anyway_is_not_lost(proposed, start, *, same):
    logs = {("in", 0): LogOffsets.of(5, 9, 9)}
    assert group_start.starts_as_proposed({("in", 0): proposed}, logs, start) is same


def test_of_many_partitions_the_reason_names_some_and_how_to_set_all():
    text = group_start.expired("app", "out", {("in", number): 7 for number in range(100)})
    assert "in/4/7 and 95 more" in text
    assert "hapax offsets set in outputs --yes" in text
    assert len(text) < 900


class ReadPastItsEnd:
    """As confluent-kafka hands out the text of a client that ends it without a NUL."""

    @property
    def metadata(self) -> str:
        return b"kgo-1f6686ee-ac7d-4b08-8374-1f81a76bccbe\xe0".decode()


def test_a_text_of_another_client_that_the_library_cannot_read_is_none_of_ours():
    assert text_of(ReadPastItsEnd()) == ""
    assert CommittedMetadata.of(ReadPastItsEnd()) == CommittedMetadata()


@pytest.mark.parametrize(
    ("text", "client"),
    [
        ("kgo-1f6686ee-ac7d-4b08-8374-1f81a76bccbe", "franz-go"),
        ("kgo-1f6686ee-ac7d-4b08-8374-1f81a76bccbe!", "franz-go"),  # the client reads on
        ("AgAAAaIcytOT", "Kafka Streams"),
        ("", ""),
        ("a text é of another client", ""),
    ],
)
def test_a_client_is_named_by_what_it_writes_beside_its_offsets(text, client):
    assert group_start.client_of(text) == client


@pytest.mark.parametrize(
    ("beside", "said"), [([FOREIGN], True), ([FOREIGN, OURS], False), ([OURS], False), ([], False)]
)
def test_a_topic_whose_offsets_are_all_of_another_client_is_named(beside, *, said):
    assert bool(group_start.taken_over("in", beside)) is said
