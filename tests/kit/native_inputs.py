"""Records as programs may write them, for the comparison of the native path with its reference."""

import os

from hypothesis import strategies as st

from tests.kit.native import PARTITIONS, Raw


def few(examples: int) -> int:
    """Return how many examples are enough: with sanitizers each takes several times as long."""
    whole = "100" if os.environ.get("DEEP") == "1" else "30"
    return max(5, examples * int(os.environ.get("NATIVE_EXAMPLES_PERCENT", whole)) // 100)


PLAIN = [
    *(b"ce_id", b"ce_source", b"content-type", b"id", b"trace", b"", b"x" * 31, b"x" * 32),
    *(b"ce-id", b"ce-source"),
    *(b"hapax-id", b"hapax-source", b"hapax-part", b"hapax-", b"hapax"),  # of a Hapax upstream
]
"""Names that no program writes in two ways."""
ODD = [
    *PLAIN,
    *(b"CE_ID", b"Ce_Id", b"CE_Source", b"cE_source", b"Content-Type", b"CONTENT-TYPE"),
    *(b"CE-ID", b"Ce-Id", b"Ce-Source"),
    *(b"ID", b"Id", b"iD", b"TRACE", b"y" * 300),
    *(b"hapax-id", b"hapax-source", b"hapax-part", b"hapax-", b"Hapax-Id", b"hapax"),
    *(b"hapax-error", b"hapax-replay-of", b"HAPAX-REPLAY-OF", b"Hapax-Replay-of"),
    *("é".encode(), "\u212a".encode(), "\u0130D".encode(), b"\xff", b"id\xff", b"a b,\n"),
]
TYPES = [
    *(b"application/cloudevents+json; charset=utf-8", b" Application/CloudEvents+JSON"),
    *(b"application/cloudevents-batch+json", b"application/json"),
]
EVENT = b'{"specversion": "1.0", "id": "1", "source": "s"}'
EVENTS = [EVENT, b" \n" + EVENT, b"\xef\xbb\xbf" + EVENT, b"\0\0\0\0\7" + EVENT, b"[%b]" % EVENT]
VALUES = [None, b"", b"1", b"2", b"0", b"a\0b", b"\xff", b"orders/0/1", b"z" * 300]
CHAINS = ["cloudevents", "header:id", "header:ID", "header:Trace", "header:ce_id", "key"]


def _headers(names: list[bytes]) -> st.SearchStrategy[tuple[tuple[bytes, bytes | None], ...]]:
    pairs = st.tuples(
        st.sampled_from(names), st.sampled_from([*VALUES, *TYPES]) | st.binary(max_size=9)
    )
    return st.lists(pairs, max_size=6).map(tuple)


def _raw(names: list[bytes]) -> st.SearchStrategy[Raw]:
    return st.builds(
        Raw,
        key=st.sampled_from([None, b"", b"k"]) | st.binary(max_size=40),
        value=st.sampled_from([None, b"", b'{"id": 1, "source": "s"}', b"[]", b"v" * 200_000])
        | st.sampled_from(EVENTS)
        | st.binary(max_size=200),
        headers=_headers(names),
        timestamp_ms=st.sampled_from([1, 1_700_000_000_000, 2**53, -1, 0]) | st.integers(0, 2**45),
        partition=st.integers(0, PARTITIONS - 1) | st.just(0),
    )


plain = st.lists(_raw(PLAIN), min_size=1, max_size=8)
anything = plain | st.lists(_raw(ODD), min_size=1, max_size=8)
chains = st.lists(st.sampled_from(CHAINS), max_size=4, unique=True)
