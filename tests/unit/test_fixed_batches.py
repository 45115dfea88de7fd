from functools import partial

import pyarrow as pa
import pytest

from hapax.cluster.micro_batches import (
    GIVEN_UP,
    FixedBatch,
    LaneMarker,
    Marker,
    MicroBatch,
    due,
    published_parcels,
)
from hapax.core.errors import PositionLostError, StopError
from hapax.engines.spark.dataframe.parts import LaneReport, Manifest, check_reports
from hapax.engines.spark.dataframe.rows import Writing, refuse_inputs
from hapax.engines.spark.dataframe.staging import Parcel

BATCH = MicroBatch("q", 7, "aa")
FIXED = FixedBatch("7-ab.manifest", "cc", 2, "aa")
FORMER = Marker(7, "q", "99")


def test_a_marker_with_fixed_rows_reads_what_it_wrote_and_keeps_the_input_before():
    marker = Marker.fixing(BATCH, FORMER, FIXED)
    assert marker == Marker(7, "q", "99", FIXED)
    assert Marker.parse(marker.next, marker.metadata) == marker


def test_a_version_that_knows_no_fixed_rows_takes_the_marker_for_somebody_elses():
    words = Marker.fixing(BATCH, FORMER, FIXED).metadata.split(" ")
    # It wants three words, of which this is the first.
    assert words[0] != FORMER.metadata.split(" ")[0]
    assert len(words) != len(FORMER.metadata.split(" "))


@pytest.mark.parametrize(
    "metadata", ["hapax2 q aa", "hapax2 q aa m c x aa", "hapax1 q aa m c 2 aa"]
)
def test_words_that_are_not_ours_are_refused(metadata):
    with pytest.raises(PositionLostError, match="was overwritten"):
        Marker.parse(7, metadata)


def test_a_micro_batch_whose_rows_are_fixed_is_due_until_it_is_published():
    assert due(BATCH, Marker.fixing(BATCH, FORMER, FIXED))
    assert not due(BATCH, Marker.after(BATCH))
    with pytest.raises(PositionLostError, match="from other input"):
        due(BATCH._replace(inputs="bb"), Marker.fixing(BATCH, FORMER, FIXED))
    with pytest.raises(PositionLostError, match="moved back"):
        due(MicroBatch("q", 8, "bb"), Marker.fixing(BATCH, FORMER, FIXED))


def test_a_lane_goes_on_behind_what_its_marker_counts_of_its_manifest_alone():
    marker = LaneMarker(3, FIXED.manifest)
    assert LaneMarker.parse(3, marker.metadata) == marker
    assert published_parcels(0, FIXED.manifest, marker) == 3
    for other in (None, LaneMarker(3, "8-cd.manifest"), GIVEN_UP, LaneMarker.parse(3, "a b")):
        with pytest.raises(PositionLostError, match="lane 0 does not publish"):
            published_parcels(0, FIXED.manifest, other)


def parcel(rows: int, size: int) -> Parcel:
    return Parcel(rows, bytes(size) if rows else None, None)


def test_lanes_share_the_parcels_evenly_and_rows_keep_their_numbers():
    parcels = [parcel(5, 50), parcel(0, 0), parcel(1, 10), parcel(4, 40), parcel(2, 20)]
    manifest = Manifest.of(BATCH, parcels, 2)
    assert [sum(share.parcel.size for share in lane) for lane in manifest.lanes] == [60, 60]
    spans = sorted((each.first, each.parcel.rows) for lane in manifest.lanes for each in lane)
    assert spans == [(0, 5), (5, 1), (6, 4), (10, 2)]
    assert [len(lane) for lane in Manifest.of(BATCH, parcels, 9).lanes] == [1, 1, 1, 1]


def report(lane: int, problem: str = "", *, lost: bool = False) -> LaneReport:
    return LaneReport(lane, 1 if problem else 2, 2, {"out": 5}, 1, problem, lost)


@pytest.mark.parametrize(
    ("reports", "kind", "text"),
    [
        ([report(0), report(1, "no answer")], StopError, "1 of 2 parcels of lane 1.*next start"),
        ([report(0), report(1, "gone", lost=True)], PositionLostError, "lane 1: gone.*docs/"),
        ([report(0)], StopError, "Reports of lanes are missing"),
    ],
)
def test_what_lanes_have_not_published_is_said_and_all_through_is_no_problem(reports, kind, text):
    with pytest.raises(StopError, match=text) as raised:
        check_reports(BATCH, FIXED, reports)
    assert type(raised.value) is kind
    check_reports(BATCH, FIXED, [report(1), report(0)])


def test_a_row_for_a_topic_that_is_read_is_refused_before_it_is_kept_and_written():
    rows = pa.record_batch({"value": [b"a", b"b"], "topic": ["out", "orders"]})
    assert refuse_inputs(rows, frozenset({"other"})) is rows
    read = frozenset({"orders"})
    for refuse in (partial(refuse_inputs, inputs=read), Writing(BATCH, "a", "out", read).messages):
        with pytest.raises(StopError, match="names topic orders, which the pipeline reads"):
            refuse(rows)
