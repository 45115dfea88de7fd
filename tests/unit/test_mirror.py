"""What outputs on another cluster carry, and where an offset is in a mirror."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hapax.core.errors import HapaxError
from hapax.core.headers import ID, PATH, SOURCE
from hapax.core.mirror import OtherCluster
from hapax.core.plan import Destinations, Planner
from hapax.core.records import Output, Record
from hapax.core.translation import Halving

if TYPE_CHECKING:
    from hapax.core.plan import Plan
    from hapax.core.records import Headers

HERE = OtherCluster(b"a", b"b", 4)


def planned(elsewhere: OtherCluster, headers: Headers = (), partition: int = 3) -> Plan:
    record = Record("in", partition, 7, b"k", b"v", headers, 5)
    planner = Planner(Destinations("app", "out", None, None, elsewhere))
    return planner.plan([record], [b""], [(Output(b"v"),)], {("in", partition): 8})


def test_a_mirrored_record_keeps_its_partition_and_all_its_headers():
    headers = (("x", b"1"), ("x", None), (ID, b"own"), ("hapax-error", b"E: why"))
    (message,) = planned(HERE, (*headers, (SOURCE, b"far/0/1"))).messages
    assert message.partition == 3
    assert message.headers == [*headers, (SOURCE, b"in/3/7"), (PATH, b"a")]


def test_an_output_of_a_function_keeps_neither():
    (message,) = planned(OtherCluster(b"a", b"b"), (("x", b"1"), ("hapax-error", b"E"))).messages
    assert message.partition == -1
    assert message.headers == [("x", b"1"), (ID, b"in/3/7"), (SOURCE, b"in/3/7"), (PATH, b"a")]


def test_a_partition_that_the_mirror_does_not_have_is_left_to_the_partitioner():
    (message,) = planned(HERE, partition=4).messages
    assert message.partition == -1


def test_the_path_grows_by_the_cluster_that_is_read():
    (message,) = planned(HERE, ((PATH, b"z,y"),)).messages
    assert (PATH, b"z,y,a") in message.headers
    assert sum(name == PATH for name, _value in message.headers) == 1


def test_a_record_that_has_been_there_is_not_written_there_again():
    plan = planned(HERE, ((PATH, b"b,c"),))
    assert (plan.messages, plan.looped, plan.filtered) == ([], 1, 0)
    assert planned(HERE, ((PATH, b"bb"),)).looped == 0


@given(st.sets(st.integers(0, 60)), st.integers(0, 62), st.data())
def test_the_place_of_an_offset_is_the_first_record_from_it_on_whatever_lies_between(
    sources, committed, data
):
    origins = sorted(sources)
    gaps = data.draw(st.lists(st.integers(1, 9), min_size=len(origins), max_size=len(origins)))
    low, places = data.draw(st.integers(0, 5)), []
    end = low
    for gap in gaps:
        places.append(end + gap - 1)
        end += gap
    end += data.draw(st.integers(0, 4))
    halving = Halving(("in", 0), committed, low, end)
    looks = 0
    while (at := halving.at) is not None:
        index = bisect_left(places, at)
        inside = index < len(places) and places[index] < halving.end
        halving.see(mirrored(places[index], origins[index]) if inside else None)
        looks += 1
    after = [place for place, origin in zip(places, origins, strict=True) if origin >= committed]
    assert halving.found == (after[0] if after else None)
    assert looks <= (end - low).bit_length() + 1


def mirrored(offset: int, origin: int, topic: str = "in") -> Record:
    return Record("out", 0, offset, None, b"", ((SOURCE, f"{topic}/0/{origin}".encode()),))


def test_a_record_of_another_topic_is_no_mirror():
    halving = Halving(("in", 0), 3, 0, 9)
    with pytest.raises(HapaxError, match="out/0/5 does not come from in/0"):
        halving.see(mirrored(5, 5, "other"))
