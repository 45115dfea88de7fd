import json
from collections import Counter

import msgspec
import pytest

from hapax.core.records import Record
from hapax.demo.orders import LARGE_CENTS, PARTITIONS, Line, Order, Shipment, price
from hapax.demo.stage import BY_KEY, Event, Traffic


def shipments(value: bytes) -> list[bytes | None]:
    return [output.value for output in price(Record("orders", 0, 0, b"customer-1", value))]


def order(*lines: Line) -> bytes:
    return msgspec.json.encode(Order("order-1", "customer-1", list(lines)))


def test_a_small_order_leaves_as_one_shipment_and_a_large_one_as_two_that_hold_all_lines():
    (value,) = shipments(order(Line("pen", 2, 150), Line("ink", 1, 700)))
    shipment = msgspec.json.decode(value or b"", type=Shipment)
    assert (shipment.total_cents, shipment.shipment, len(shipment.lines)) == (1000, 1, 2)
    lines = [Line("desk", 1, LARGE_CENTS - 100), Line("pen", 1, 60), Line("ink", 1, 40)]
    first, second = (
        msgspec.json.decode(value or b"", type=Shipment) for value in shipments(order(*lines))
    )
    assert first.total_cents + second.total_cents == LARGE_CENTS
    assert (first.shipment, second.shipment) == (1, 2)
    assert Counter([*first.lines, *second.lines]) == Counter(lines)


@pytest.mark.parametrize(
    "value", [b"", b"no JSON", b'{"order":', b"[]", order(), order(Line("pen", 0, 1))]
)
def test_what_is_no_order_raises(value):
    with pytest.raises(ValueError, match=r"."):
        shipments(value)


def events(seed: int) -> list[Event]:
    traffic = Traffic(seed)
    return [event for _ in range(100) for event in traffic.burst(100)[1]]


def test_the_same_seed_gives_the_same_traffic_and_another_one_does_not():
    assert events(7) == events(7)
    assert events(7) != events(8)


def test_a_repeat_has_the_same_id_key_and_value_as_its_event_and_some_choose_their_partition():
    all_events = events(1)
    distinct = {event[:3] for event in all_events}
    assert len({event.id for event in all_events}) == len(distinct)
    assert 0.01 < (len(all_events) - len(distinct)) / len(all_events) < 0.04
    assert {event.partition for event in all_events} == {BY_KEY, *range(PARTITIONS)}
    traffic = Traffic(1)
    assert {traffic.burst(10)[0] for _ in range(200)} == {True, False}


def test_some_events_are_poison_of_two_kinds_and_some_are_split():
    kinds: Counter[str] = Counter()
    for event in events(1):
        try:
            kinds[f"{len(shipments(event.value))} shipments"] += 1
        except msgspec.DecodeError:
            kinds["no JSON"] += 1
        except ValueError:
            json.loads(event.value)
            kinds["refused"] += 1
    assert set(kinds) == {"1 shipments", "2 shipments", "no JSON", "refused"}
    assert kinds["no JSON"] + kinds["refused"] < 0.01 * kinds.total()
