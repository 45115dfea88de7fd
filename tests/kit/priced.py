"""Business code with data, for processes that tests start."""

import msgspec

from hapax import Output, Record


class Order(msgspec.Struct):
    id: int
    name: str = ""


def price(record: Record[Order]) -> Output:
    """Return the order with its total: data, which the service encodes."""
    return Output({"id": record.data.id, "total": 2 * record.data.id})


async def price_later(record: Record[Order]) -> dict[str, int]:
    return {"id": record.data.id, "total": 2 * record.data.id}


def price_all(records: list[Record[Order]]) -> list[dict[str, int]]:
    return [{"id": one.data.id, "total": 2 * one.data.id} for one in records]
