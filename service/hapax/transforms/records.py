"""Transforms that read no value: every kind of record passes through them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.records import Output
from hapax.processing.transform import identity

if TYPE_CHECKING:
    from hapax.core.records import Record

__all__ = ["drop_tombstones", "identity"]


def drop_tombstones(record: Record) -> Output | None:
    """Pass on what has a value; a tombstone (no value at all) is filtered."""
    return None if record.value is None else Output(record.value)
