"""From a raw record to the packed call of the claim store: nothing that a sender writes raises."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from hypothesis import example, given, settings, strategies as st

from hapax.claims.kind import StoreOptions
from hapax.claims.redis import RedisClaims, first_number
from hapax.core.record_path import ClaimRequest
from hapax.core.records import Record
from hapax.processing.identity import Identity

SOURCES = ["cloudevents", "header:message-id", "header:hapax-id", "json:/a/0", "json:/id", "key"]
NAMES = ["hapax-replay-of", "Hapax-Replay-Of", "ce_id", "ce_source", "content-type", "message-id"]
NUMBERS = ["0", "7", "007", "-1", "2147483648", "99999999999", str(2**63), "9" * 5000, "٣", "²", ""]

coordinates = st.builds(
    lambda topic, partition, offset: f"{topic}/{partition}/{offset}".encode(),
    st.sampled_from(["in", "other", "", "a/b", "made-up"]) | st.text(max_size=8),
    st.sampled_from(NUMBERS) | st.integers().map(str),
    st.sampled_from(NUMBERS) | st.integers().map(str),
)
texts = st.none() | st.binary(max_size=40) | coordinates
values = (
    texts
    | st.just(b"application/cloudevents+json")
    | st.sampled_from(
        [
            b'{"id": ' + b"9" * 5000 + b"}",
            b'{"id": 1e400}',
            b'{"id": "\\ud800", "source": "\\udfff"}',
            b'{"a": [' * 2000,
            b"[" * 200_000,
            b'{"id": true, "source": {}}',
            b'{"id": -0.0}',
        ]
    )
)
headers = st.lists(st.tuples(st.sampled_from(NAMES) | st.text(max_size=8), values), max_size=5).map(
    tuple
)


class Wire:
    """A connection that keeps the request, and answers that every id is new."""

    def __init__(self, requests: list[tuple[object, ...]]) -> None:
        self._requests = requests

    def __call__(self, _client: object, commands: Sequence[tuple[object, ...]]) -> "Wire":
        self._requests += commands
        return self

    def read(self, count: int) -> list[Any]:
        assert count == 1
        *_, number, _topic = self._requests[-1]
        return [[b"3", EPOCH, b"", b"1000", [number], b"", b"0"]]


EPOCH = b"0123456789abcdef"


@settings(max_examples=150, deadline=None)
@given(st.lists(st.builds(lambda h, k, v: (h, k, v), headers, texts, values), max_size=6))
@example([((("hapax-replay-of", b"t/99999999999/1"),), b"k", b"v")])
@example([((("hapax-replay-of", b"in/0/9223372036854775807"),), b"k", b"v")])
def test_whatever_records_hold_the_claim_call_is_packed_and_names_own_inputs_alone(raw):
    records = [
        Record("in", 0, offset, key, value, tuple(named))
        for offset, (named, key, value) in enumerate(raw)
    ]
    found = Identity(SOURCES, inputs=["in"]).identify(records)
    places = [index for index, claim in enumerate(found.claims) if claim]
    order = {index: place for place, index in enumerate(places)}
    sent: list[tuple[object, ...]] = []
    claims = RedisClaims("redis://127.0.0.1:1", StoreOptions("app", ttl_ms=3200))
    number = first_number("in")
    claims._store.take([b"3", EPOCH, b"", b"1000", []], [], 0.0)
    wanted = ClaimRequest(
        [found.claims[index] for index in places],
        [records[index] for index in places],
        {order[index]: owner for index, owner in found.replays.items() if index in order},
    )
    with patch("hapax.claims.redis.Exchange", Wire(sent)):
        claims.ask(wanted).answer()
    assert {owner.topic for owner in found.replays.values()} <= {"in"}
    owners = [found.replays.get(index, records[index]) for index in places]
    assert len(sent) == bool(places)
    for *_, counts, named, packed, gone, asked, topic in sent:
        assert (asked, topic, gone) == (int.from_bytes(number, "big"), "in", b"")
        digests = wanted.digests(claims._store.salt)
        all_owners = b"".join(
            number + owner.partition.to_bytes(3, "big") + owner.offset.to_bytes(8, "big")
            for owner in owners
        )
        _, expected, *rest = wanted.by_shard(digests, all_owners, b"")
        assert [named, packed, gone] == rest
        assert counts == " ".join(map(str, expected))
