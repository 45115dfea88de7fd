"""What goes into the pipelines of examples/spark_stateful, and what must come of it: plain Python.

Everything is decided by event time and by the order within a partition, nothing by the clock: the
last records of each partition are so much later that all windows and timers before them are over.
All partitions hold as many records, so that micro-batches, which take a share of each, come to
their ends together.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

from tests.kit.topics import Given

PARTITIONS = 2
BEGAN_MS = 1_709_294_400_000
"""2024-03-01T12:00:00Z, the begin of a minute, and past by any clock: brokers refuse the future."""
APART_MS = 2_000
"""Between two events: 1,000 events are half an hour, many times the watermarks of 5 minutes."""
LATER_MS = 24 * 3_600_000
MINUTE_MS = 60_000
CLOSING = "closing"
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}


class Feed(NamedTuple):
    """Records by topic ending, those that come too late, and what must come out of the first."""

    given: dict[str, list[Given]]
    late: dict[str, list[Given]]
    expected: Counter[bytes]


class Shape(NamedTuple):
    """One pipeline: the module of its function, its input topics' endings, and what feeds it."""

    name: str
    topics: tuple[str, ...]
    feed: Callable[[int], Feed]
    rocksdb: bool

    @property
    def dataframe(self) -> str:
        return f"examples.spark_stateful.{self.name}:pipeline"

    @property
    def properties(self) -> dict[str, str]:
        small = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}
        return small | (ROCKSDB if self.rocksdb else {})


def windows(events: int) -> Feed:
    """Orders of five shops, and how many cents each minute has."""
    orders = [(number, f"shop-{number % 5}", 100 + number % 7) for number in range(events)]
    sums: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for number, shop, cents in orders:
        total = sums[shop, _at_ms(number) // MINUTE_MS * MINUTE_MS]
        total[0] += 1
        total[1] += cents
    expected = Counter(
        _json({"shop": shop, "minute": _text(ms), "orders": count, "cents": cents})
        for (shop, ms), (count, cents) in sums.items()
    )
    given = [
        _given({"shop": shop, "at": _text(_at_ms(number)), "cents": cents}, shop, number)
        for number, shop, cents in orders
    ]
    late = [_given({"shop": "shop-0", "at": _text(BEGAN_MS), "cents": 1}, "late", 0)] * 3
    return Feed({"orders": given + _closing(events, shop=CLOSING)}, {"orders": late}, expected)


def join(events: int) -> Feed:
    """Orders, and payments of each third of them: in time, too late, and never."""
    expected: Counter[bytes] = Counter()
    orders, payments = [], []
    for number in range(events):
        at_ms, name = _at_ms(number), f"o-{number}"
        orders.append(_given({"id": name, "at": _text(at_ms), "cents": number}, name, number))
        after_ms = (10 if number % 3 == 0 else 11) * MINUTE_MS
        paid = name if number % 3 < 2 else f"of-another-shop-{number}"
        payments.append(
            _given({"order": paid, "at": _text(at_ms + after_ms), "by": "card"}, paid, number)
        )
        by = "card" if number % 3 == 0 else "unpaid"
        expected[_json({"id": name, "cents": number, "by": by})] += 1
    given = {
        "orders": orders + _closing(events, id=CLOSING),
        "payments": payments + _closing(events, order=CLOSING, by=CLOSING),
    }
    late = _given({"order": "o-2", "at": _text(BEGAN_MS), "by": "card"}, "late", 0)
    # The last orders pay for themselves.
    expected[_json({"id": CLOSING, "by": CLOSING})] = PARTITIONS * PARTITIONS
    return Feed(given, {"payments": [late]}, expected)


def once(events: int) -> Feed:
    """Orders that are sent up to three times, in either partition, within a few minutes."""
    sent: list[tuple[int, Given]] = []
    expected: Counter[bytes] = Counter()
    for number in range(events):
        value = _json({"id": f"o-{number}", "cents": number})
        expected[value] += 1
        for again in range(1 + number % 3):
            place = number + 40 * again
            sent.append((place, Given(value, b"%d" % number, (), -1, _at_ms(place))))
    sent.sort(key=lambda one: one[0])
    given = [one._replace(partition=index % PARTITIONS) for index, (_place, one) in enumerate(sent)]
    end_ms = _at_ms(events) + LATER_MS
    if len(given) % PARTITIONS:
        given.append(given[-1]._replace(partition=len(given) % PARTITIONS))
    given += [
        Given(b'{"id": "closing"}', b"c", (), partition, end_ms) for partition in range(PARTITIONS)
    ]
    expected[b'{"id": "closing"}'] = 1
    late = Given(b'{"id": "late"}', b"late", (), 0, BEGAN_MS)
    return Feed({"orders": given}, {"orders": [late]}, expected)


def baskets(events: int) -> Feed:
    """Users who take something every now and then; some buy, some never come back.

    Their turns are of no size that a micro-batch has, so that most of these end with full baskets.
    """
    given, of_user = [], defaultdict[str, list[tuple[int, str | None]]](list)
    for number in range(events):
        # Each user is away for an hour after every tenth event of his.
        user, turn = f"user-{number % 22}", number // 22
        at_ms = _at_ms(number) + turn // 10 * 60 * MINUTE_MS
        item = None if turn % 4 == 3 else f"item-{number}"
        event = {"user": user, "at": _text(at_ms)} | ({} if item is None else {"item": item})
        given.append(_given(event, user, number))
        of_user[user].append((at_ms, item))
    expected = Counter(
        _json({"user": user, "items": items, "end": end})
        for user, its in of_user.items()
        for items, end in _ended(its)
    )
    late = [_given({"user": "late", "at": _text(BEGAN_MS), "item": "late"}, "late", 0)]
    # Their purchase of nothing ends nothing, but moves the time.
    closing = _closing(events, later_ms=30 * LATER_MS, user=CLOSING)
    return Feed({"orders": given + closing}, {"orders": late}, expected)


SHAPES = (
    Shape("windows", ("orders",), windows, rocksdb=False),
    Shape("join", ("orders", "payments"), join, rocksdb=True),
    Shape("once", ("orders",), once, rocksdb=False),
    Shape("baskets", ("orders",), baskets, rocksdb=True),
)


def _ended(events: Iterable[tuple[int, str | None]]) -> Iterator[tuple[list[str], str]]:
    """Yield each basket of one user's events: cut them at purchases, and at half an hour."""
    items: list[str] = []
    for (at_ms, item), (next_ms, _next) in pairwise([*events, (1 << 62, None)]):
        if item is not None:
            items.append(item)
        gone = next_ms - at_ms > 30 * MINUTE_MS
        if items and (item is None or gone):
            yield items, "bought" if item is None else "abandoned"
            items = []


def _given(value: dict[str, Any], key: str, number: int) -> Given:
    return Given(_json(value), key.encode(), (), number % PARTITIONS, _at_ms(number))


def _closing(events: int, *, later_ms: int = LATER_MS, **value: str) -> list[Given]:
    end_ms = _at_ms(events) + later_ms
    return [
        Given(_json(value | {"at": _text(end_ms)}), CLOSING.encode(), (), partition, end_ms)
        for partition in range(PARTITIONS)
    ]


def _at_ms(number: int) -> int:
    return BEGAN_MS + number * APART_MS


def _text(ms: int) -> str:
    """As Spark writes a timestamp in JSON."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def _json(value: dict[str, Any]) -> bytes:
    """As Spark writes JSON: without blanks."""
    return json.dumps(value, separators=(",", ":")).encode()
