"""How open transactions look: as rows, in sentences, and as JSON."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from hapax.commands.screen import age_text, moment_text, printable

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


def must_choose(one: Holder) -> str:
    """Say why the outcome has to be given for a transaction of a known id."""
    told = f"what the coordinator of {one.transactional_id} decided is no longer in its log"
    if one.decided:
        told = (
            f"the coordinator of {one.transactional_id} reports that its last transaction here was"
            f" {one.decided}; its marker in this partition may have been lost"
        )
    what = "offsets count" if one.of_offsets else "records visible"
    return f"{told}: --outcome commit makes its {what}, --outcome abort drops them permanently"


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
        what = f"{gap.high - gap.stable:,} undecided from {gap.stable:,} on, by {who}"
        if gap.of_offsets:
            what = f"offsets of {who} are held back: the group cannot read them and waits"
        typer.echo(printable(f"{gap.topic}/{gap.partition}: {what}"))
        for one in gap.holders or ():
            known = one.transactional_id or "unknown transactional id"
            typer.echo(
                printable(
                    f"  producer {one.producer_id}, epoch {one.epoch}, from {one.start:,} on, last"
                    f" written {_since(one)} ago: {_hangs(one) if one.hanging else known}"
                )
            )


def _hangs(one: Holder) -> str:
    was = f", it was {one.decided}" if one.decided else ""
    return f"HANGING, no coordinator knows of it{was}; end it: {way_out(one)}"


def way_out(one: Holder) -> str:
    """Return what to type to end a hanging transaction as it was decided."""
    outcome = {"committed": " --outcome commit", "aborted": " --outcome abort"}
    return (
        f"hapax transactions abort --partition {one.topic}/{one.partition}"
        f" --producer-id {one.producer_id}{outcome.get(one.decided or '', '')}"
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
        "not_examined": found.unseen,
    }


def gap_figures(one: Gap) -> dict[str, Any]:
    """Return one partition as JSON can have it."""
    return {
        "topic": one.topic,
        "partition": one.partition,
        "last_stable": one.stable,
        "high_watermark": one.high,
        "transactional_ids": one.blamed,
        "holds_back": "offsets" if one.of_offsets else "records",
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
                "end_with": way_out(each) if each.hanging else None,
            }
            for each in one.holders
        ],
    }
