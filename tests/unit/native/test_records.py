"""What was taken: native records against those that the reference makes of the same messages."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from hapax.core.interrupt import Interrupt
from hapax.core.record_path import Batch
from hapax.core.records import Coordinates
from hapax.kafka.consume.decode import messages_of, read_native
from hapax.kafka.consume.partition_state import PartitionStates
from hapax.kafka.errors import NAME_UNREADABLE
from hapax.kafka.native import NativeBatch
from hapax.processing.identity import Identity
from tests.kit.doubles import Ticking
from tests.kit.native import Raw, anything, chains, few, plain, reference

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.kit.native import Stage

SALT = bytes(range(16))


def digests(ids: list[bytes]) -> bytes:
    return b"".join(
        blake2b(each, digest_size=16, salt=SALT).digest() if each else bytes(16) for each in ids
    )


@given(records=anything, chain=chains)
@settings(max_examples=few(150), deadline=None)
def test_ids_are_those_of_the_reference_or_the_batch_takes_it(stage, records, chain):
    for native, batch in stage.play(records, chain):
        found = Identity(chain, inputs={"orders"}).identify(batch.records)
        if bool(found.poison or found.replays or batch.unreadable):
            assert not native.regular
        if native.regular:
            assert list(native.ids) == found.ids
            assert list(native.claims) == found.claims
            assert native.claims.digests(SALT) == digests(list(found.claims))
            assert native.ids.digests(SALT) == digests(list(found.ids))
            assert native.claims.missing == list(found.claims).count(b"")


@given(records=plain)
@settings(max_examples=few(30), deadline=None)
def test_lower_case_names_and_ids_in_headers_or_keys_are_the_rule(stage, records):
    for native, _batch in stage.play(records, ["header:id", "key"]):
        assert native.regular


@given(records=anything)
@settings(max_examples=few(80), deadline=None)
def test_every_record_is_that_of_the_reference(stage, records):
    for native, batch in stage.play(records, []):
        assert reference(messages_of(native)) == batch
        if batch.unreadable:
            assert not native.regular
            continue
        expected = list(batch.records)
        assert list(native) == expected
        assert len(native) == len(expected)
        places = [native.coordinates(index) for index in range(len(native))]
        assert places == [tuple(record.coordinates) for record in expected]
        offsets = b"".join(record.offset.to_bytes(8, "big") for record in expected)
        assert native.owners([b""] * len(native.runs)) == offsets


@given(records=plain, part=st.slices(9), place=st.integers(-9, 8), done=st.integers(0, 9))
@settings(max_examples=few(50), deadline=None)
def test_it_is_a_sequence_like_the_list_of_the_reference(stage, records, part, place, done):
    for native, batch in stage.play(records, ["header:id"]):
        expected = list(batch.records)
        assert native[part] == expected[part]
        if -len(expected) <= place < len(expected):
            assert native[place] == expected[place]
        else:
            with pytest.raises(IndexError):
                native[place]
        ids = list(native.ids)
        done = min(done, len(expected))
        mine = NativeBatch(native, batch.first, batch.next).facts(native.ids, done)
        assert mine == batch.facts(ids, done)


@given(records=plain)
@settings(max_examples=few(30), deadline=None)
def test_progress_and_epochs_follow_as_in_the_reference(stage, records):
    for native, batch in stage.play(records, []):
        states = PartitionStates(Ticking())
        mine = read_native(native, states)
        assert mine is not None
        assert (mine.first, mine.next) == (batch.first, batch.next)
        assert states.next_offsets() == batch.next
        for index, record in enumerate(batch.records):
            assert mine.coordinates(index) == record.coordinates
        starts = [start for _topic, _partition, start, *_rest in native.runs]
        counts = [count for _topic, _partition, _start, count, *_rest in native.runs]
        assert starts == [sum(counts[:index]) for index in range(len(counts))]
        assert sum(counts) == len(native)


def test_what_was_handed_out_before_is_left_to_the_reference(stage):
    ((native, batch),) = one(stage)
    states = PartitionStates(Ticking())
    (where,) = batch.first
    states[where].next = batch.first[where] + 1
    assert read_native(native, states) is None


def one(stage: Stage) -> list[tuple[Any, Batch]]:
    return stage.play([Raw(b"k", b"v", ((b"id", b"1"),))], ["header:id"])


def test_a_record_outlives_its_batch(stage):
    ((native, batch),) = one(stage)
    kept, ids = native[0], native.ids
    del native
    assert ids[0] == b"1"
    del ids
    assert kept == batch.records[0]


def test_a_header_name_that_is_not_utf8_does_not_end_the_process(stage):
    """The client returned a broken list and left an error behind, which came up anywhere."""
    usual = [Raw(b"k", b"v", ((b"id", b"1"),))] * 100  # Python specialises calls that are warm
    odd = Raw(b"k", b"odd", ((b"id", b"1"), (b"\xff", b"2")))
    reasons: dict[bytes | None, str] = {}
    for _native, batch in stage.play([*usual, odd, *usual], []):
        reasons |= {batch.records[index].value: text for index, text in batch.unreadable.items()}
    assert reasons == {b"odd": NAME_UNREADABLE}


@pytest.mark.parametrize(
    "headers",
    [
        ((b"id\0x", b"1"),),
        ((b"id\0", b""), (b"other", b"2")),
        ((b"\0", b"1"),),
        ((b"id\0x", None),),
        ((b"id\0x", b"1"), (b"id", b"1")),
        ((b"id\0x", None), (b"id", None)),
        ((b"id", b"1"), (b"id\0x", b"1")),
        ((b"id", None), (b"id\0x", None)),
    ],
)
def test_a_header_name_with_a_nul_is_unreadable_and_never_cut(stage, headers):
    whole = Raw(b"k", b"whole", ((b"id", None), (b"id", b"1"), (b"id", None), (b"", None)))
    takes = stage.play([whole, Raw(b"k", b"odd", headers)], ["header:id"])
    found: dict[bytes | None, str | None] = {}
    for native, _batch in takes:
        batch = reference(messages_of(native))
        assert native.regular == (not batch.unreadable)
        for index, record in enumerate(batch.records):
            found[record.value] = batch.unreadable.get(index)
    assert found == {b"whole": None, b"odd": NAME_UNREADABLE}


def test_many_headers_without_a_value_are_not_looked_up_one_by_one(stage):
    many = Raw(b"k", b"v", tuple((b"%d" % number, None) for number in range(20_000)))
    ((native, batch),) = stage.play([many], ["header:id"])
    assert (native.regular, reference(messages_of(native)).unreadable) == (True, {})
    assert list(native) == batch.records


def test_records_that_were_given_back_are_no_empty_batch(stage):
    """An empty one would have its progress committed without its outputs."""
    ((native, batch),) = one(stage)
    ids = native.ids
    native.close()
    native.close()
    assert len(native) == 1
    assert Coordinates(*native.coordinates(0)) == batch.records[0].coordinates
    for use in (
        lambda: native[0],
        lambda: list(native),
        lambda: ids[0],
        lambda: list(ids),
        lambda: ids.missing,
        lambda: ids.digests(SALT),
        lambda: native.runs,
        lambda: native.owners([]),
        lambda: native.facts(1),
        lambda: native.tally([]),
        native.messages,
        lambda: native.headers(0),
        lambda: native.apply(None, None, Interrupt(), {}),
        lambda: stage.path.module.preview(native, [()], 0),
        lambda: stage.path.module.send(stage.client, "orders", native, [()], 0),
    ):
        with pytest.raises(RuntimeError, match="given back"):
            use()


def test_wrong_arguments_are_refused(stage):
    ((native, _batch),) = one(stage)
    wrong: list[tuple[Callable[[], object], type[Exception]]] = [
        (lambda: native["0"], TypeError),
        (lambda: native[2**70], IndexError),
        (lambda: native.coordinates(-1), IndexError),
        (lambda: native.coordinates("0"), TypeError),
        (lambda: native.headers(7), IndexError),
        (lambda: native.facts("1"), TypeError),
        (lambda: native.ids[1], IndexError),
        (lambda: native.ids.digests(b"short"), ValueError),
        (lambda: native.tally(()), TypeError),
        (lambda: stage.path.module.send(object(), "t", native, [], 0), ValueError),
        (lambda: stage.path.module.send(stage.client, "t", native, [(), ()], 0), ValueError),
        (stage.path.module.Records, TypeError),
        (lambda: stage.path.module.Intake(stage.client, [("key",)]), TypeError),
        (lambda: stage.path.module.Intake(stage.client, [("header", "hapax-x", b"")]), ValueError),
        (lambda: stage.path.module.Intake(stage.client, [("key", "", b"")] * 9), ValueError),
        (lambda: stage.intake([]).take(0, 0), ValueError),
    ]
    for use, error in wrong:
        with pytest.raises(error):
            use()
