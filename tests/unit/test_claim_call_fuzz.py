"""From a raw record to the packed call of the claim store: nothing that a sender writes raises."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from hapax.claims.kind import StoreOptions
from hapax.claims.redis import RedisClaims
from hapax.core.identity import Identity
from hapax.core.records import Record

if TYPE_CHECKING:
    from hapax.core.records import Headers

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


def packed(claims: RedisClaims, calls: list[Any]) -> None:
    """Put a script that only keeps its arguments in the place of the one in Redis."""

    def script(
        *, keys: list[bytes], args: list[Any]
    ) -> tuple[bytes, bytes, list[bytes], bytes, bytes]:
        calls.append((keys, args))
        return b"epoch", b"", [], b"", b"0"

    claims._script = script  # type: ignore[assignment] # a stand-in


@settings(max_examples=400, deadline=None)
@given(st.lists(st.builds(lambda h, k, v: (h, k, v), headers, texts, values), max_size=6))
@example([((("hapax-replay-of", b"t/99999999999/1"),), b"k", b"v")])
@example([((("hapax-replay-of", b"in/0/9223372036854775807"),), b"k", b"v")])
def test_whatever_records_hold_the_claim_call_is_packed_and_names_own_inputs_alone(
    raw: list[tuple[Headers, bytes | None, bytes | None]],
) -> None:
    records = [
        Record("in", 0, offset, key, value, tuple(named))
        for offset, (named, key, value) in enumerate(raw)
    ]
    found = Identity(SOURCES, inputs=["in"]).identify(records)
    places = [index for index, claim in enumerate(found.claims) if claim]
    order = {index: place for place, index in enumerate(places)}
    calls: list[Any] = []
    claims = RedisClaims("redis://127.0.0.1:1", StoreOptions("app", ttl_ms=1000))
    packed(claims, calls)
    claims.claim(
        [found.claims[index] for index in places],
        [records[index] for index in places],
        {order[index]: owner for index, owner in found.replays.items() if index in order},
    )
    assert {owner.topic for owner in found.replays.values()} <= {"in"}
    for _keys, (_ttl_ms, _epoch, digests, lows, runs, *_more, topic) in calls:
        assert topic == "in"
        assert (len(digests), len(lows)) == (16 * len(places), 4 * len(places))
        assert sum(count for *_rest, count in struct.iter_unpack(">HIII", runs)) == len(places)
