"""What each customer has paid so far; the key of a record is the customer."""

from dataclasses import dataclass

from hapax import Record, State


@dataclass
class Payment:
    """What comes in."""

    cents: int


@dataclass
class Total:
    """What is kept, and written."""

    payments: int = 0
    cents: int = 0


def transform(record: Record[Payment], state: State[Total]) -> Total:
    total = state.get("total", Total())
    total.payments += 1
    total.cents += record.data.cents
    state.set("total", total)
    return total
