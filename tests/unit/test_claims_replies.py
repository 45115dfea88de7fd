"""Replies of Redis as they come from a socket, and owners as they stand in a bucket."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, NoScriptError, ResponseError

from hapax.claims.redis_buckets import Buckets
from hapax.claims.redis_exchange import Replies
from hapax.claims.redis_layout import Layout, age, date, owner_coordinates, owner_texts, place
from hapax.core.records import Coordinates


class Socket:
    """A connection that has these bytes, so many at a time."""

    def __init__(self, text: bytes, at_once: int) -> None:
        self._sock = self
        self._text, self._at_once = text, at_once

    def recv(self, _most: int) -> bytes:
        some, self._text = self._text[: self._at_once], self._text[self._at_once :]
        return some


def replies(text: bytes, at_once: int = 1) -> Replies:
    connection: Any = Socket(text, at_once)
    return Replies(connection)


@pytest.mark.parametrize("at_once", [1, 3, 1000])
def test_replies_are_the_same_however_they_are_cut(at_once):
    text = b":1\r\n:0\r\n:1\r\n$5\r\na\r\nbc\r\n$-1\r\n*2\r\n:12\r\n+OK\r\n"
    found = replies(text, at_once)
    assert found.numbers(3) == b"101"
    assert found.values(2) == [b"a\r\nbc", None]
    assert found.value() == [12, b"OK"]


@pytest.mark.parametrize("at_once", [1, 1000])
def test_replies_of_the_newer_protocol_are_read_as_well(at_once):
    text = (
        b"_\r\n#t\r\n#f\r\n,1.5\r\n(12\r\n~1\r\n+a\r\n%1\r\n$1\r\nk\r\n:1\r\n>1\r\n+news\r\n:7\r\n"
    )
    found = replies(text, at_once)
    assert found.values(5) == [None, 1, 0, b"1.5", b"12"]
    assert found.values(3) == [[b"a"], [b"k", 1], 7]


@pytest.mark.parametrize("at_once", [1, 1000])
def test_an_error_among_many_replies_is_raised(at_once):
    with pytest.raises(ResponseError, match="OOM command not allowed"):
        replies(b":1\r\n-OOM command not allowed\r\n:1\r\n", at_once).numbers(3)
    with pytest.raises(NoScriptError):
        replies(b"-NOSCRIPT No matching script\r\n", at_once).value()


def test_what_is_no_answer_and_an_answer_that_breaks_off_are_errors():
    with pytest.raises(InvalidResponse):
        replies(b"HTTP/1.1 400 Bad Request\r\n").value()
    with pytest.raises(RedisConnectionError):
        replies(b":1\r\n:").numbers(2)


owners = st.builds(
    Coordinates,
    st.sampled_from(["orders", "returns"]),
    st.integers(0, 2**31 - 1) | st.integers(0, 300),
    st.integers(0, 2**63 - 1) | st.integers(2**32 - 2, 2**32 + 2) | st.integers(0, 9),
)
NUMBERS = {"orders": b"\0\0\x01", "returns": b"\xff\xff\xff"}
TOPICS = {number: topic for topic, number in NUMBERS.items()}


@given(st.lists(owners, max_size=30))
def test_owners_are_the_same_after_a_way_through_a_bucket_and_differ_as_bytes(given_owners):
    texts = owner_texts(given_owners, NUMBERS)
    assert [owner_coordinates(text, TOPICS.__getitem__) for text in texts] == given_owners
    assert len(set(texts)) == len(set(given_owners))


def test_an_owner_of_most_partitions_has_8_bytes():
    assert len(owner_texts([Coordinates("orders", 63, 2**32 - 1)], NUMBERS)[0]) == 8


@given(st.binary(min_size=16, max_size=16), st.integers(1, 23))
def test_an_id_stands_in_one_of_the_two_buckets_that_its_bucket_becomes(digest, bits):
    index = int.from_bytes(digest[:3], "big") >> (24 - bits)
    assert Layout(bits, bits + 1, index).bits(digest) == bits
    assert Layout(bits, bits + 1, index + 1).bits(digest) == bits + 1
    few, many = (place(b"", each, digest) for each in (bits, bits + 1))
    assert few.key != many.key
    assert few.key[1 : 1 + bits // 8] + few.field == digest


def test_a_date_of_the_future_counts_as_today():
    assert age(date(1_000, 10), date(500, 10)) == 50
    assert age(date(500, 10), date(1_000, 10)) == 0
    assert age(3, 65_535) == 4


def test_the_time_of_redis_goes_on_with_ours():
    buckets: Any = SimpleNamespace(
        world=SimpleNamespace(now_ms=1_000, answered_s=10.0),
        canary=SimpleNamespace(clock=SimpleNamespace(now=lambda: 10.25)),
    )
    assert Buckets.redis_ms(buckets) == 1_250


def test_the_topic_of_a_number_is_asked_for_once():
    asked = []

    def hget(meta: bytes, name: str) -> bytes | None:
        asked.append((meta, name))
        return b"orders/an-id" if name == "number:5" else None

    buckets: Any = SimpleNamespace(names={}, meta=b"m", client=SimpleNamespace(hget=hget))
    assert [Buckets.topic(buckets, b"\0\5") for _ in range(2)] == ["orders"] * 2
    assert Buckets.topic(buckets, b"\0\6") == ""
    assert asked == [(b"m", "number:5"), (b"m", "number:6")]
