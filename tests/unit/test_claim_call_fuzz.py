"""From a raw record to the packed call of the claim store: nothing that a sender writes raises."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from hapax.claims.kind import StoreOptions
from hapax.claims.redis import RedisClaims
from hapax.claims.redis_buckets import first_number
from hapax.claims.redis_layout import owner_coordinates
from hapax.core.identity import Identity
from hapax.core.records import Coordinates, Record

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

    def __init__(self, requests: list[list[list[bytes]]]) -> None:
        self._requests = requests
        self._sock = self

    def __call__(self, _client: object, *parts: bytes) -> "Wire":
        self._requests.append(list(commands(b"".join(parts))))
        return self

    def read(self, read: Callable[[Any], Any]) -> Any:
        return read(self)

    def recv(self, _most: int) -> bytes:
        *claims, turn = self._requests[-1]
        replies = [b"2", b"00000000", b"", b"11 11 2048", b"11 11 2048", FACTS]
        assert turn[0] == b"EVALSHA"
        number = b"*1\r\n:%b\r\n" % turn[-2]
        bulks = b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in replies)
        return b":1\r\n" * len(claims) + b"*7\r\n" + bulks + number


FACTS = b"100 3200 99999999 1000"


def commands(request: bytes) -> Iterator[list[bytes]]:
    """Yield what Redis would read."""
    at = 0

    def number(kind: bytes) -> int:
        nonlocal at
        end = request.index(b"\r\n", at)
        assert request[at : at + 1] == kind
        found, at = int(request[at + 1 : end]), end + 2
        return found

    while at < len(request):
        parts = []
        for _ in range(number(b"*")):
            length = number(b"$")
            parts.append(request[at : at + length])
            assert request[at + length : at + length + 2] == b"\r\n"
            at += length + 2
        yield parts


@settings(max_examples=400, deadline=None)
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
    sent: list[list[list[bytes]]] = []
    claims = RedisClaims("redis://127.0.0.1:1", StoreOptions("app", ttl_ms=3200))
    number = first_number("in")
    reply = [b"2", b"00000000", b"", b"11 11 2048", b"11 11 2048", FACTS, [number]]
    claims._buckets.take(reply, ["in"], 0, 0.0)
    with patch("hapax.claims.redis_claim.Exchange", Wire(sent)):
        claims.claim(
            [found.claims[index] for index in places],
            [records[index] for index in places],
            {order[index]: owner for index, owner in found.replays.items() if index in order},
        )
    assert {owner.topic for owner in found.replays.values()} <= {"in"}
    owners = [found.replays.get(index, records[index]) for index in places]
    for *asked, turn in sent:
        assert turn[-2:] == [b"%d" % number, b"in"]
        assert [command for command, *_ in asked] == [b"HSETNX"] * len(places)
        assert [
            owner_coordinates(value[2:], {number.to_bytes(3, "big"): "in"}.__getitem__)
            for *_, value in asked
        ] == [Coordinates(owner.topic, owner.partition, owner.offset) for owner in owners]
    assert len(sent) == bool(places)
