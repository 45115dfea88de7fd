"""Where a partition begins for which the group has no offset: the decision, without brokers."""

import pytest

from hapax.core.group_start import (
    by_start,
    client_of,
    expired,
    new_with_each_start,
    partly_begun,
    starts_as_proposed,
    taken_over,
)
from hapax.core.offset_commit import CommittedMetadata, text_of
from hapax.core.partition_offsets import LogOffsets

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
    assert by_start(number, beside) is placed


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
    assert ("HAPAX_GROUP__MEMBERSHIP=dynamic" in new_with_each_start(instance)) is warned


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({0: FOREIGN}, "2 of 3 partitions have no offset, they begin at HAPAX_INPUT__START=latest"),
        ({0: OURS}, "they begin at their first record: they were added"),
        ({0: COUNTED}, "=latest, the others at their first record: they were added"),
    ],
)
def test_partitions_without_an_offset_are_counted_and_placed_in_words(known, words):
    assert partly_begun([("in", 1), ("in", 2)], known, "latest").endswith(words)


@pytest.mark.parametrize(
    ("proposed", "start", "same"),
    [(5, "earliest", True), (6, "earliest", False), (9, "latest", True), (9, "30d", False)],
)
def test_what_start_leads_to_anyway_is_not_lost(proposed, start, *, same):
    logs = {("in", 0): LogOffsets.of(5, 9, 9)}
    assert starts_as_proposed({("in", 0): proposed}, logs, start) is same


def test_of_many_partitions_the_reason_names_some_and_how_to_set_all():
    text = expired("app", "out", {("in", number): 7 for number in range(100)})
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
    assert client_of(text) == client


@pytest.mark.parametrize(
    ("beside", "said"),
    [([FOREIGN], True), ([FOREIGN, OURS], False), ([OURS], False), ([], False)],
)
def test_a_topic_whose_offsets_are_all_of_another_client_is_named(beside, *, said):
    assert bool(taken_over("in", beside)) is said
