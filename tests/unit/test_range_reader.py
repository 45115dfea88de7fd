"""Reading ranges, on a client whose messages are said beforehand."""

from contextlib import nullcontext
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from hapax.core.errors import BatchAbortedError, PreflightError, StopError
from hapax.core.records import Coordinates
from hapax.kafka.read import claim_owners, range_reader
from hapax.kafka.read.claim_owners import KafkaOwners
from hapax.kafka.read.range_reader import (
    AuditRangeReader,
    OffsetRange,
    RangeFetch,
    RangeReader,
    RangeReadError,
)
from hapax.operations import reading
from hapax.operations.reading import await_decided, read_ranges, undecided
from hapax.settings import load_settings
from tests.kit.consumers import event, message
from tests.unit.test_settings import REQUIRED

P0, P1 = ("in", 0), ("in", 1)
EOF = KafkaError._PARTITION_EOF


def said(at: int, code: int | None = None, partition: int = 0) -> Message:
    """Return a record at an offset, or an error there."""
    if code is None:
        return message(at, partition=partition)
    return event(code, at, partition=partition)


class Saying:
    """A consumer that says one batch of messages for each poll."""

    def __init__(self, *batches: list[Message]) -> None:
        self._batches = list(batches)
        self._rest: list[Message] = []
        self.assigned: list[tuple[int, int]] = []
        self.starts: list[int] = []
        self.paused: list[int] = []
        self.closed = 0

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned = [(one.partition, one.offset) for one in places]
        self.starts += [one.offset for one in places]

    def poll(self, _timeout_s: float) -> Message | None:
        batch = self._batches.pop(0) if self._batches else []
        self._rest = batch[1:]
        return batch[0] if batch else None

    def consume(self, _most: int, _timeout_s: float) -> list[Message]:
        return self._rest

    def pause(self, places: list[TopicPartition]) -> None:
        self.paused += [one.partition for one in places]

    def close(self) -> None:
        self.closed += 1


def refused(place: str, error: KafkaError) -> Exception:
    return PermissionError(f"{place} {error.name()}")


def fetch(consumer: Saying, *, over: tuple[int, ...] = ()) -> RangeFetch:
    spans = {P0: (2, 5), P1: (0, 9), ("in", 2): (7, 7)}
    return RangeFetch(consumer, spans, refused=refused, over=over)  # type: ignore[arg-type]


@pytest.fixture
def say(monkeypatch):
    def saying(*batches: list[Message]) -> Saying:
        consumer = Saying(*batches)

        def client(properties: dict[str, Any], *, logger: object) -> Saying:
            return consumer

        monkeypatch.setattr(range_reader, "Consumer", client)
        return consumer

    return saying


@pytest.mark.parametrize(
    ("last", "kept"),
    [
        (said(4), [2, 4]),  # the last offset of the range
        (said(5), [2]),  # a record behind it: what was between is not delivered
        (said(6, EOF), [2]),  # markers at the end
        (said(5, KafkaError._BAD_MSG), [2]),  # a set behind it that cannot be decoded
    ],
)
def test_a_range_ends_with_an_event_or_a_record_at_its_end(last, kept):
    consumer = Saying([said(2), last, said(3)])
    reading = fetch(consumer)
    assert [message.offset() for message in reading.poll()] == kept
    assert (reading.ends, reading.undecodable) == ({P1: 9}, {})
    assert consumer.assigned == [(0, 2), (1, 0)]


def test_an_end_before_the_end_is_none_unless_the_caller_says_so():
    early = [said(3, EOF), said(4, EOF, partition=1)]
    reading = fetch(Saying(early))
    assert (reading.poll(), reading.ends) == ([], {P0: 5, P1: 9})
    reading = fetch(Saying(early), over=(EOF,))
    assert (reading.poll(), reading.ends) == ([], {})


def test_nothing_after_a_set_that_cannot_be_decoded_is_read_and_an_event_without_offset_is_none():
    reading = fetch(Saying([said(2), said(3, KafkaError._BAD_MSG), said(4)]))
    assert [message.offset() for message in reading.poll()] == [2]
    assert reading.undecodable[P0].offset == 3
    assert reading.ends == {P0: 5, P1: 9}
    reading = fetch(Saying([event(KafkaError._CRIT_SYS_RESOURCE, partition=1)]))
    assert (reading.poll(), reading.undecodable) == ([], {})
    assert reading.ends == {P0: 5, P1: 9}


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._AUTO_OFFSET_RESET,
    ],
)
def test_what_no_patience_heals_is_raised_with_its_place(code):
    with pytest.raises(PermissionError, match=r"^in/1 "):
        fetch(Saying([said(0, code, partition=1)])).poll()
    assert fetch(Saying([said(0, KafkaError._TRANSPORT)])).poll() == []


def test_only_records_and_ends_of_the_ranges_break_the_silence():
    others = [said(2, KafkaError._TRANSPORT), said(9, partition=7), said(1, EOF)]
    stuck = [said(3, KafkaError._BAD_MSG, partition=1), said(4, partition=1)]
    reading = fetch(Saying(others, stuck, [said(3)]))
    reading.heard_s -= 30
    reading.poll()
    reading.poll()
    assert reading.silent(20)
    reading.poll()
    assert not reading.silent(20)


def test_a_reader_reads_every_partition_to_its_end_and_closes_or_names_what_stops_it(say):
    consumer = say([said(0), said(0, partition=1)], [said(1), said(2, EOF, partition=1)])
    seen = RangeReader(load_settings(REQUIRED)).read({P0: (0, 2), P1: (0, 2)})
    assert [[one.record.coordinates[1:] for one in batch] for batch in seen] == [
        [(0, 0), (1, 0)],
        [(0, 1)],
    ]
    assert (sorted(consumer.paused), consumer.closed) == ([0, 1], 1)
    say([said(0, KafkaError._BAD_MSG)])
    reader = RangeReader(load_settings(REQUIRED))
    with pytest.raises(PreflightError, match="in/0/0: the set that begins there"):
        list(reader.read({P0: (0, 2)}))
    assert P0 in reader.undecodable


def test_firsts_are_the_first_records_of_their_spans(say):
    consumer = say(
        [said(3), said(4), said(5, EOF, partition=1)], [said(0, KafkaError._BAD_MSG, partition=2)]
    )
    reader = RangeReader(load_settings(REQUIRED))
    found = reader.firsts({P0: (1, 9), P1: (2, 5), ("in", 2): (0, 1), ("in", 3): (4, 4)}, 5.0)
    assert found.pop(P0).record.offset == 3  # type: ignore[union-attr]
    assert found == {P1: None}
    assert reader.undecodable.keys() == {("in", 2)}
    assert sorted(consumer.paused) == [0, 1, 2]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (KafkaError._AUTO_OFFSET_RESET, "in/0: records were deleted while they were read"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "in/0: cannot be read: TOPIC_AUTHORIZATION_FAILED"),
        (KafkaError._BAD_MSG, "in/0/1: the set that begins there cannot be read"),
    ],
)
def test_an_audit_concludes_nothing_from_half_a_stretch(say, code, why):
    say([said(0), said(1, code)])
    with pytest.raises(RangeReadError, match=why):
        list(AuditRangeReader({}, OffsetRange(0, "in", 0, 0, 4)).committed())


def test_an_audit_looks_for_aborted_records_where_no_committed_one_was(say):
    reader = AuditRangeReader({}, OffsetRange(0, "in", 0, 0, 4))
    say([said(0), said(3)])
    assert [len(records) for records in reader.committed()] == [2]
    consumer = say([said(1), said(2)])
    assert list(reader.hidden()) == [[1, 2]]
    assert consumer.assigned == [(0, 1)]


# -- What commands read: ranges with progress, and waiting for open transactions ----------

A, B = ("in", 0), ("in", 1)


class Offsets:
    """Answers with one last stable offset after another for the first partition."""

    def __init__(self, *stable: int) -> None:
        self._stable = list(stable)

    def high_watermarks(self, _: object) -> dict[tuple[str, int], int]:
        return {A: 9, B: 4}

    def last_stable(self, _: object) -> dict[tuple[str, int], int]:
        return {A: self._stable.pop(0) if len(self._stable) > 1 else self._stable[0], B: 4}


def client(*stable: int) -> Any:
    return cast("Any", Offsets(*stable))


def test_it_waits_until_all_whose_end_readers_do_not_reach_is_decided():
    assert undecided(client(5), [A, B]) == {A: (5, 9)}
    assert undecided(client(9), [A, B]) == {}
    waits: list[None] = []
    ends, behind = await_decided(client(5, 7, 11), [A, B], 60_000, lambda: waits.append(None))
    assert (ends, behind, len(waits)) == ({A: 11, B: 4}, {}, 2)


def test_after_the_time_of_a_transaction_it_names_what_is_still_open(monkeypatch):
    monkeypatch.setattr("hapax.operations.reading.MARGIN_S", 0.0)
    monkeypatch.setattr("hapax.operations.reading.REST_S", 0.0)
    ends, behind = await_decided(client(7), [A, B], 0, lambda: None)
    assert (ends[A], behind) == (7, {A: (7, 9)})


class Chunks:
    """Stands for the reader of ranges."""

    def __init__(self, _settings: object, isolation: str) -> None:
        assert isolation == "read_uncommitted"

    def read(self, spans: dict[tuple[str, int], tuple[int, int]]) -> Any:
        assert set(spans) == {A, B}
        yield ["a", "b"]
        yield ["c"]


def test_reading_reports_how_far_it_is_of_all_offsets(monkeypatch):
    monkeypatch.setattr(reading, "RangeReader", Chunks)
    heard: list[tuple[object, ...]] = []
    spans = {A: (2, 9), B: (4, 3)}
    found = read_ranges(
        cast("Any", None), spans, lambda *said: heard.append(said), "reading", "read_uncommitted"
    )
    assert [len(chunk) for chunk in found] == [2, 1]
    assert heard == [("reading", 2, 7), ("reading", 3, 7)]


IN = ("in", 0)


class Log(Saying):
    """A log of offsets 2 to 9, and what its messages are."""

    watermarks: tuple[int, int] | int = (2, 9)
    later: tuple[int, int] | None = None
    unassigned = asked_again = closed = 0

    def get_watermark_offsets(self, _where: TopicPartition, timeout: float) -> tuple[int, int]:
        if isinstance(self.watermarks, int):
            raise KafkaException(KafkaError(self.watermarks))
        return self.watermarks

    def list_topics(self, _topic: str, timeout: float) -> None:
        """Ask who leads; from the next answer on it is a broker that knows the end."""
        self.asked_again += 1
        if self.later is not None:
            self.watermarks = self.later

    def unassign(self) -> None:
        self.unassigned += 1

    def committed(self, _partitions: list[TopicPartition], _timeout_s: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def owners():
    def made(*batches: list[Message]) -> tuple[KafkaOwners, Log]:
        log = Log(*batches)
        found = KafkaOwners(
            load_settings({**REQUIRED, "HAPAX_INPUT__TOPICS": "in"}),
            watch=lambda _call: nullcontext(),
        )
        found._queries.read_committed = log  # type: ignore[assignment]
        return found, log

    return made


def test_only_owners_are_kept_no_far_gap_is_read_and_nothing_stays_paused(owners):
    found, log = owners([said(3), said(4)], [said(5), said(6)], [said(900), said(901)])
    log.watermarks = (2, 999)
    batch = found.records([Coordinates(*IN, at) for at in (3, 5, 900)] + [Coordinates("old", 0, 1)])
    assert ([record.offset for record in batch.records], batch.next) == ([3, 5, 900], {})
    # The next look-up reads with the same client, and a pause would stay.
    assert (log.starts, log.paused, log.unassigned) == ([3, 900], [], 1)


@pytest.mark.parametrize("bound", ["LOOK_S", "KEPT_BYTES"])
def test_a_look_up_that_is_over_names_what_it_has_not_reached(owners, monkeypatch, bound):
    """It has looked at one owner at least, also where something else comes before it."""
    monkeypatch.setattr(claim_owners, bound, -1)
    found, log = owners([said(3)], [said(5)], [said(6)])
    wanted = [Coordinates(*IN, at) for at in (4, 6, 8)]
    batch = found.records(wanted)
    assert ([record.offset for record in batch.records], batch.next) == ([], {IN: 6})
    batch = found.records(wanted[1:])
    assert ([record.offset for record in batch.records], batch.next) == ([6], {IN: 8})
    assert log.starts == [4, 6]


@pytest.mark.parametrize(
    ("batches", "watermarks", "read"),
    [
        ([[said(3), said(4, KafkaError.UNKNOWN_TOPIC_OR_PART)]], (2, 9), [3]),  # it was deleted
        ([[said(3), said(5, EOF)]], (2, 5), [3]),  # it is believed to end before the second
        ([[said(3), said(4, EOF)], [said(5), said(6)]], (2, 9), [3, 6]),  # of an old leader
    ],
)
def test_owners_are_read_to_the_end_that_is_believed(
    owners, monkeypatch, batches, watermarks, read
):
    monkeypatch.setattr(claim_owners, "BEYOND_END_S", 0.0)
    found, log = owners(*batches)
    log.watermarks = watermarks
    batch = found.records([Coordinates(*IN, 3), Coordinates(*IN, 6)])
    assert [record.offset for record in batch.records] == read


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (EOF, "no answer"),  # the log ends at 9; only a broker that has not heard of it ends at 4
        (KafkaError._AUTO_OFFSET_RESET, "cannot be looked up"),
        (KafkaError._BAD_MSG, "no answer"),  # it hides its owners for now
    ],
)
def test_from_a_broker_that_leads_no_more_or_a_damaged_set_nothing_is_concluded(
    owners, monkeypatch, code, text
):
    monkeypatch.setattr(claim_owners, "ANSWER_TIMEOUT_S", 0.1)
    found, log = owners([said(3), said(4, code)])
    with pytest.raises(BatchAbortedError, match=text):
        found.records([Coordinates(*IN, 3), Coordinates(*IN, 6)])
    assert log.unassigned == 1


@pytest.mark.parametrize("marks", [(6, 9), (0, 5), KafkaError._UNKNOWN_PARTITION])
def test_what_is_deleted_or_not_there_yet_is_not_read(owners, monkeypatch, marks):
    monkeypatch.setattr(claim_owners, "BEYOND_END_S", 0.0)
    found, log = owners()
    log.watermarks = marks
    assert found.records([Coordinates(*IN, 5)]).records == []
    assert log.assigned == []


def test_without_an_answer_nothing_is_concluded(owners, monkeypatch):
    monkeypatch.setattr(claim_owners, "ANSWER_TIMEOUT_S", -1.0)
    found, log = owners()
    with pytest.raises(BatchAbortedError, match="owners in in/0: no answer"):
        found.records([Coordinates(*IN, 5)])
    assert (log.unassigned, log.closed) == (1, 1)
    found, log = owners()
    log.watermarks = KafkaError._TIMED_OUT
    with pytest.raises(BatchAbortedError, match="cannot be looked up"):
        found.records([Coordinates(*IN, 5)])
    assert log.closed == 1


def test_a_client_that_got_no_answer_is_not_asked_again(owners):
    """It may wait for a coordinator of before, for ever."""
    found, log = owners()
    with pytest.raises(BatchAbortedError, match=r"\(committed offsets\): _TIMED_OUT"):
        found.committed([IN], 0.1, stable=True)
    assert log.closed == 1
    assert "read_committed" not in found._queries.__dict__


def test_a_right_that_is_missing_stops_the_service(owners):
    found, _log = owners([said(3, KafkaError.TOPIC_AUTHORIZATION_FAILED)])
    with pytest.raises(StopError, match=r"owners of claims \(in/0\)"):
        found.records([Coordinates(*IN, 5)])


@pytest.mark.parametrize("again_s", [claim_owners.BEYOND_END_S, 0.0])
def test_a_leader_that_was_frozen_does_not_make_an_owner_gone(owners, monkeypatch, again_s):
    monkeypatch.setattr(claim_owners, "BEYOND_END_S", again_s)
    found, log = owners([said(8)], [said(9)])
    log.watermarks, log.later = (2, 5), (2, 10)
    batch = found.records([Coordinates(*IN, 8)])
    # The control believes the first answer, as the service did.
    assert [record.offset for record in batch.records][:1] == ([8] if again_s else [])
    assert log.asked_again == (1 if again_s else 0)


def test_an_end_that_stays_is_believed_and_not_waited_for_again(owners, monkeypatch):
    monkeypatch.setattr(claim_owners, "BEYOND_END_S", 0.01)
    found, log = owners()
    log.watermarks = (2, 5)
    assert found.records([Coordinates(*IN, 8)]).records == []
    asked = log.asked_again
    monkeypatch.setattr(claim_owners, "BEYOND_END_S", 60.0)
    assert found.records([Coordinates(*IN, 8)]).records == []
    assert log.asked_again == asked
