"""Results: what the call of one record came to, as step 4 returns it."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

from hapax.core.records import Output

if TYPE_CHECKING:
    from hapax.core.headers import Retried


class Cut(IntEnum):
    """What a dead letter leaves out: each step after the brokers refused the one before.

    VALUE  the value
    ALL    also key, headers and timestamp of the record: its coordinates and the reason remain
    """

    NOTHING = 0
    VALUE = 1
    ALL = 2


class Failure(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Business code did not answer for this record: it becomes a dead letter."""

    reason: str  # type of the error, a bounded set for metrics
    text: str
    attempts: int
    cut: Cut = Cut.NOTHING


class Undecided(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A schema was not to be had: nothing is known of the record, which is called again.

    refused  no waiting helps; ``unset``: nor another schema, for a setting is missing
    """

    reason: str
    key: str = ""
    refused: bool = False
    unset: bool = False


class Later(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Business code asked for a later try, or the policy did; ``attempts``: calls of this time.

    after_ms  None: the policy's delay
    """

    after_ms: int | None
    reason: str
    text: str
    attempts: int


class Put(msgspec.Struct, frozen=True, gc=False):
    """The record waits on. ``called``: it asked for a later try; else it was not due yet."""

    retried: Retried
    level: int
    called: bool


Result = tuple[Output, ...] | Failure | Later | Put | Undecided
"""What one record's call came to; Later and Put: it waits (retry_later.py)."""
