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
    """The same, as plain data of a coroutine."""
    return {"id": record.data.id, "total": 2 * record.data.id}


def price_all(records: list[Record[Order]]) -> list[dict[str, int]]:
    """The same, for a list."""
    return [{"id": one.data.id, "total": 2 * one.data.id} for one in records]
