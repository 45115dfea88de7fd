"""The rules as a transform with a gate in it, for the service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fault import business
from tests.fault.controls import gate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax import Output, Record


def split(record: Record) -> Iterator[Output]:
    """Yield what the rules ask for."""
    gate.pass_through(record.value or b"")
    yield from business.split(record)
