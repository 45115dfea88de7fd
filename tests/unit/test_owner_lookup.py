"""Records of owners, on a client made by hand; tests/integration has brokers."""

from contextlib import nullcontext

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hapax.core.errors import BatchAbortedError, StopError
from hapax.core.records import Coordinates
from hapax.kafka.read import claim_owners
from hapax.kafka.read.claim_owners import KafkaOwners
from hapax.settings import load_settings
from tests.unit.test_range_reader import EOF, Said, Saying
from tests.unit.test_settings import REQUIRED

P0 = ("in", 0)


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
    def made(*batches: list[Said]) -> tuple[KafkaOwners, Log]:
        log = Log(*batches)
        found = KafkaOwners(
            load_settings({**REQUIRED, "HAPAX_INPUT__TOPICS": "in"}),
            watch=lambda _call: nullcontext(),
        )
        found._queries.read_committed = log  # type: ignore[assignment]
        return found, log

    return made


def test_owners_are_read_with_their_neighbours_and_nothing_stays_paused(owners):
    found, log = owners([Said(3), Said(4)], [Said(5), Said(6)])
    batch = found.records([Coordinates(*P0, 3), Coordinates(*P0, 5), Coordinates("old", 0, 1)])
    assert [record.offset for record in batch.records] == [3, 4, 5]
    assert log.assigned == [(0, 3)]
    # The next look-up reads with the same client, and a pause would stay.
    assert (log.paused, log.unassigned) == ([], 1)


def test_a_topic_that_is_deleted_meanwhile_holds_no_more_owners(owners):
    found, _log = owners([Said(3), Said(4, KafkaError.UNKNOWN_TOPIC_OR_PART)])
    batch = found.records([Coordinates(*P0, 3), Coordinates(*P0, 6)])
    assert [record.offset for record in batch.records] == [3]


def test_a_log_that_is_believed_to_end_before_an_owner_is_read_to_that_end(owners, monkeypatch):
    monkeypatch.setattr(claim_owners, "BEYOND_END_S", 0.0)
    found, log = owners([Said(3), Said(5, EOF)])
    log.watermarks = (2, 5)
    batch = found.records([Coordinates(*P0, 3), Coordinates(*P0, 6)])
    assert [record.offset for record in batch.records] == [3]


@pytest.mark.parametrize(
    ("code", "text"), [(EOF, "no answer"), (KafkaError._AUTO_OFFSET_RESET, "cannot be looked up")]
)
def test_from_a_broker_that_leads_no_more_nothing_is_concluded(owners, monkeypatch, code, text):
    """The log ends at 9; only a broker that has not heard of it ends at 4."""
    monkeypatch.setattr(claim_owners, "ANSWER_TIMEOUT_S", 0.1)
    found, log = owners([Said(3), Said(4, code)])
    with pytest.raises(BatchAbortedError, match=text):
        found.records([Coordinates(*P0, 3), Coordinates(*P0, 6)])
    assert log.unassigned == 1


def test_the_end_of_a_broker_that_leads_no_more_is_read_past(owners):
    found, _log = owners([Said(3), Said(4, EOF)], [Said(5), Said(6)])
    batch = found.records([Coordinates(*P0, 3), Coordinates(*P0, 6)])
    assert [record.offset for record in batch.records] == [3, 5, 6]


@pytest.mark.parametrize("marks", [(6, 9), (0, 5), KafkaError._UNKNOWN_PARTITION])
def test_what_is_deleted_or_not_there_yet_is_not_read(owners, monkeypatch, marks):
    monkeypatch.setattr(claim_owners, "BEYOND_END_S", 0.0)
    found, log = owners()
    log.watermarks = marks
    assert found.records([Coordinates(*P0, 5)]).records == []
    assert log.assigned == []


def test_without_an_answer_nothing_is_concluded(owners, monkeypatch):
    monkeypatch.setattr(claim_owners, "ANSWER_TIMEOUT_S", -1.0)
    found, log = owners()
    with pytest.raises(BatchAbortedError, match="owners in in/0: no answer"):
        found.records([Coordinates(*P0, 5)])
    assert (log.unassigned, log.closed) == (1, 1)
    found, log = owners()
    log.watermarks = KafkaError._TIMED_OUT
    with pytest.raises(BatchAbortedError, match="cannot be looked up"):
        found.records([Coordinates(*P0, 5)])
    assert log.closed == 1


def test_a_client_that_got_no_answer_is_not_asked_again(owners):
    """It may wait for a coordinator of before, for ever."""
    found, log = owners()
    with pytest.raises(BatchAbortedError, match=r"\(committed offsets\): _TIMED_OUT"):
        found.committed([P0], 0.1, stable=True)
    assert log.closed == 1
    assert "read_committed" not in found._queries.__dict__


def test_a_set_that_cannot_be_decoded_hides_its_owners_for_now(owners, monkeypatch):
    found, _log = owners([Said(3), Said(4, KafkaError._BAD_MSG), Said(5)])
    monkeypatch.setattr(claim_owners, "ANSWER_TIMEOUT_S", 0.1)
    with pytest.raises(BatchAbortedError, match="no answer"):
        found.records([Coordinates(*P0, 5)])


def test_a_right_that_is_missing_stops_the_service(owners):
    found, _log = owners([Said(3, KafkaError.TOPIC_AUTHORIZATION_FAILED)])
    with pytest.raises(StopError, match=r"owners of claims \(in/0\)"):
        found.records([Coordinates(*P0, 5)])


@pytest.mark.parametrize("again_s", [claim_owners.BEYOND_END_S, 0.0])
def test_a_leader_that_was_frozen_does_not_make_an_owner_gone(owners, monkeypatch, again_s):
    monkeypatch.setattr(claim_owners, "BEYOND_END_S", again_s)
    found, log = owners([Said(8)], [Said(9)])
    log.watermarks, log.later = (2, 5), (2, 10)
    batch = found.records([Coordinates(*P0, 8)])
    # The control believes the first answer, as the service did.
    assert [record.offset for record in batch.records][:1] == ([8] if again_s else [])
    assert log.asked_again == (1 if again_s else 0)


def test_an_end_that_stays_is_believed_and_not_waited_for_again(owners, monkeypatch):
    monkeypatch.setattr(claim_owners, "BEYOND_END_S", 0.01)
    found, log = owners()
    log.watermarks = (2, 5)
    assert found.records([Coordinates(*P0, 8)]).records == []
    asked = log.asked_again
    monkeypatch.setattr(claim_owners, "BEYOND_END_S", 60.0)
    assert found.records([Coordinates(*P0, 8)]).records == []
    assert log.asked_again == asked
