from hypothesis import given, settings

from hapax.core.record_path import ClaimRequest
from hapax.kafka.native import NativeClaims
from tests.kit.native import few, plain

SALT = bytes(range(16))
NUMBERS = {"orders": b"\x11\x22\x33"}


@given(records=plain)
@settings(max_examples=few(200), deadline=None)
def test_digests_and_owners_of_native_records_are_those_of_a_list(stage, records):
    for native, batch in stage.play(records, ["header:id", "key"]):
        mine, theirs = NativeClaims(native.claims, native), ClaimRequest([], batch.records)
        assert mine.topics() == theirs.topics()
        assert mine.packed_owners(NUMBERS) == theirs.packed_owners(NUMBERS)
        for index, (claim, at) in enumerate(zip(native.claims, range(0, 10**9, 16), strict=False)):
            digest = mine.digests(SALT)[at : at + 16]
            assert digest == (ClaimRequest([claim]).digests(SALT) if claim else bytes(16)), index


@given(records=plain)
@settings(max_examples=few(200), deadline=None)
def test_native_records_are_sorted_by_shard_as_a_list_is(stage, records):
    for native, batch in stage.play(records, ["header:id", "key"]):
        wanted = NativeClaims(native.claims, native)
        given = wanted.digests(SALT), wanted.packed_owners(NUMBERS), b""
        indices, *rest = wanted.by_shard(*given)
        expected, *others = ClaimRequest(records=batch.records).by_shard(*given)
        assert [*indices] == expected
        assert rest == others
