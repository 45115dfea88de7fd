"""How open transactions look: as rows, in sentences, and as JSON."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from hapax.commands.screen import printable
from hapax.commands.times import age_text, moment_text

if TYPE_CHECKING:
    from hapax.core.transaction_states import Holder, TransactionState
    from hapax.operations.transactions import Gap, Open

COLUMNS = ("transactional id", "state", "age", "timeout", "producer", "last", "alive", "open in")
_PARTITIONS_SHOWN = 4


def _since(one: Holder) -> str:
    return age_text((time.time() * 1000 - one.last_ms) / 1000)


def question(transactional_id: str, state: TransactionState | None) -> str:
    """Ask whether to fence an id."""
    what = "whatever it has open"
    if state is not None:
        age = age_text(state.age_s(int(time.time() * 1000)))
        what = f"its transaction of {age} in {_places(state)}"
    return (
        f"End {what} by fencing {printable(transactional_id)}? A live worker with this id "
        "repeats its batch."
    )


def marker_question(one: Holder, partition: str, *, commit: bool) -> str:
    """Ask whether to end a hanging transaction."""
    return (
        f"{'Commit' if commit else 'Roll back'} what producer {one.producer_id} (epoch"
        f" {one.epoch}) has open in {partition} from {one.start} on, last written"
        f" {_since(one)} ago? No coordinator knows of it."
    )


def row(one: TransactionState, found: Open, now_ms: int) -> tuple[str, ...]:
    """Return the cells of ``COLUMNS``."""
    alive = "?" if found.live is None else found.live.get(one.transactional_id, "")
    return (
        one.transactional_id,
        f"{one.state} OVERDUE" if one.overdue(now_ms) else one.state,
        age_text(one.age_s(now_ms)) if one.undecided else "",
        age_text(one.timeout_ms / 1000),
        f"{one.producer_id}/{one.epoch}",
        moment_text(one.updated_ms),
        alive,
        _places(one) if one.undecided else "",
    )


def _places(one: TransactionState) -> str:
    shown = [f"{topic}/{number}" for topic, number in one.partitions[:_PARTITIONS_SHOWN]]
    more = len(one.partitions) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def show_gaps(gaps: list[Gap]) -> None:
    """Print where readers are held up, and by whom."""
    if not gaps:
        typer.echo("No transaction is open: readers reach the end of every partition.")
    for gap in gaps:
        who = ", ".join(gap.blamed) or (
            "an unknown producer: another program, or a hanging transaction"
        )
        typer.echo(
            printable(
                f"{gap.topic}/{gap.partition}: {gap.high - gap.stable:,} undecided from"
                f" {gap.stable:,} on, by {who}"
            )
        )
        for one in gap.holders or ():
            known = one.transactional_id or "unknown transactional id"
            hangs = "HANGING, no coordinator knows of it: abort it with --partition, --producer-id"
            typer.echo(
                printable(
                    f"  producer {one.producer_id}, epoch {one.epoch}, from {one.start:,} on, last"
                    f" written {_since(one)} ago: {hangs if one.hanging else known}"
                )
            )


def figures(found: Open, now_ms: int) -> dict[str, Any]:
    """Return everything as JSON can have it."""
    return {
        "states_known": found.states is not None,
        "reason": found.reason,
        "transactions": [
            {
                "transactional_id": one.transactional_id,
                "state": one.state,
                "undecided": one.undecided,
                "overdue": one.overdue(now_ms),
                "age_seconds": one.age_s(now_ms),
                "timeout_ms": one.timeout_ms,
                "producer_id": one.producer_id,
                "epoch": one.epoch,
                "updated_ms": one.updated_ms,
                "alive": None if found.live is None else one.transactional_id in found.live,
                "partitions": [f"{topic}/{number}" for topic, number in one.partitions],
            }
            for one in found.states or []
        ],
        "members": found.live,
        "undecided": [gap_figures(one) for one in found.gaps],
        "producers_unknown": found.untold or None,
    }


def gap_figures(one: Gap) -> dict[str, Any]:
    """Return one partition as JSON can have it."""
    return {
        "topic": one.topic,
        "partition": one.partition,
        "last_stable": one.stable,
        "high_watermark": one.high,
        "transactional_ids": one.blamed,
        "producers": None
        if one.holders is None
        else [
            {
                "producer_id": each.producer_id,
                "epoch": each.epoch,
                "start_offset": each.start,
                "last_written_ms": each.last_ms,
                "transactional_id": each.transactional_id,
                "hanging": each.hanging,
                "decided": each.decided,
            }
            for each in one.holders
        ],
    }
