import pytest

from hapax.core import headers
from hapax.core.errors import PositionLostError
from hapax.core.micro_batches import Marker, MicroBatch, PublishedRecord, due
from hapax.core.records import Record

BATCH = MicroBatch("q", 7, "aa")


def test_the_first_micro_batch_of_all_needs_no_marker():
    assert due(MicroBatch("q", 0, "aa"), None) is True


@pytest.mark.parametrize(
    ("marker", "publish"),
    [
        (Marker(7, "q", "99"), True),
        (Marker(8, "q", "aa"), False),
        (Marker(8, "q"), False),
    ],
)
def test_a_micro_batch_is_due_unless_the_marker_says_that_it_is_published(marker, *, publish):
    assert due(BATCH, marker) is publish


@pytest.mark.parametrize(
    ("marker", "why"),
    [
        (None, "it expired while the query was stopped"),
        (Marker(7, "other", "99"), "published by query other: the checkpoint was lost"),
        (Marker(8, "other", "aa"), "published by query other: the checkpoint was lost"),
        (Marker(6, "q", "99"), "it was moved back"),
        (Marker(9, "q", "99"), "the checkpoint is an old copy"),
        (Marker(8, "q", "bb"), "the last of other input: the checkpoint is an old copy"),
    ],
)
def test_what_is_not_certain_is_neither_published_nor_skipped(marker, why):
    with pytest.raises(PositionLostError, match=why) as refused:
        due(BATCH, marker)
    assert "docs/dataframes.md" in str(refused.value)


def test_a_fresh_query_on_published_micro_batches_is_a_lost_checkpoint():
    with pytest.raises(PositionLostError, match="the checkpoint was lost"):
        due(MicroBatch("new", 0, "aa"), Marker(12, "q", "bb"))


@pytest.mark.parametrize("inputs", ["aa", ""])
def test_a_marker_reads_what_it_wrote(inputs):
    marker = Marker.after(MicroBatch("q", 7, inputs))
    assert marker.next == 8
    assert Marker.parse(marker.next, marker.metadata) == marker


@pytest.mark.parametrize("metadata", ["", "hapax1 q", "hapax2 q aa", "somebody else's words"])
def test_a_marker_of_somebody_else_is_refused(metadata):
    with pytest.raises(PositionLostError, match="was overwritten"):
        Marker.parse(7, metadata)


@pytest.mark.parametrize(
    ("query", "advice"),
    [
        ("other", r'publish the input again on purpose, call .*set_marker\(query="q", number=0\)'),
        ("q", r'set_marker\(query="q", number=…\) with the next one'),
    ],
)
def test_a_first_micro_batch_without_marker_stops_where_the_output_knows_of_an_earlier_one(
    query, advice
):
    found = PublishedRecord("out", 3, 17, query, 12)
    with pytest.raises(PositionLostError, match=advice) as refused:
        due(MicroBatch("q", 0, "aa"), None, found)
    assert f"out/3/17 is a record of micro-batch 12 of query {query}" in str(refused.value)


def record(*headers: tuple[str, bytes | None]) -> Record:
    return Record("out", 3, 17, None, b"v", headers, 0)


def test_a_record_says_which_micro_batch_of_which_app_wrote_it():
    header = MicroBatch("q", 7).header(3, "shop")
    assert header == b"q/7/3/shop"
    found = PublishedRecord.parse(record(("a", b"1"), (headers.BATCH, header)), "shop")
    assert found == PublishedRecord("out", 3, 17, "q", 7)
    assert PublishedRecord.parse(record((headers.BATCH, header)), "shop-eu") is None


def test_a_record_that_names_no_app_counts_as_ours():
    found = PublishedRecord.parse(record((headers.BATCH, b"q/7/3")), "shop")
    assert found == PublishedRecord("out", 3, 17, "q", 7)


@pytest.mark.parametrize(
    "value", [None, b"", b"q/7", b"q/x/3/shop", b"\xff/\xff/\xff", b"a/b/c/d/e"]
)
def test_what_is_no_header_of_a_micro_batch_is_nobodys(value):
    assert PublishedRecord.parse(record((headers.BATCH, value)), "shop") is None
