"""Settled: what one batch came to. Filled by step 7, narrated by telemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from hapax.core.records import Coordinates, TopicPartition
    from hapax.core.transform import Failure

Span = tuple[int, int]
"""The first offset taken, and the next offset to read."""


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """One batch whose transaction has ended, in numbers. It keeps no record alive.

    outcome              how the transaction ended: ``committed``
    attempt              1 for a batch that went through at once
    offsets              per partition the span of the progress that was committed
    records              records taken
    inputs               the same by input topic; may stay empty when there is one input topic
    outputs              records written, by topic, dead letters included
    duplicates           records whose id belongs to other coordinates
    filtered             records for which the transform had no output
    dead_letters         records that became dead letters
    dead_letter_reasons  the same by the name of the exception's type
    dead_letter_examples the first few of them, with what became of their last attempt
    without_id           records processed although no source of ids found one
    unchecked            records processed without claims (outage policy ``pass``)
    claims_new_or_own    ids that were ours, new or seen before
    claims_taken_over    ids among them that belonged to records that are gone (claim_owners.py)
    bytes_in             values of the input, in bytes
    phases_s             seconds by step: identify, claim, transform, plan, send, send_offsets,
                         commit; a step that did not happen may be left out
    oldest_timestamp_ms, newest_timestamp_ms  of the records, Unix time; 0 when there is none
    trace                ids of the trace and the span, in hexadecimal; None without tracing
    """

    outcome: str = "committed"
    attempt: int = 1
    offsets: dict[TopicPartition, Span]
    records: int
    inputs: dict[str, int] = {}
    outputs: dict[str, int] = {}
    duplicates: int = 0
    filtered: int = 0
    dead_letters: int = 0
    dead_letter_reasons: dict[str, int] = {}
    dead_letter_examples: list[tuple[Coordinates, Failure]] = []
    without_id: int = 0
    unchecked: int = 0
    claims_new_or_own: int = 0
    claims_taken_over: int = 0
    bytes_in: int = 0
    phases_s: dict[str, float] = {}
    oldest_timestamp_ms: int = 0
    newest_timestamp_ms: int = 0
    trace: tuple[str, str] | None = None
