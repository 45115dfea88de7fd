"""``hapax transactions``: what our transactional ids have open, and ending it by hand."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.commands.screen import (
    JsonFlag,
    YesFlag,
    confirm,
    print_json,
    print_table,
    printable,
    refusals,
    telling,
)
from service.commands.times import age_text, moment_text

if TYPE_CHECKING:
    from service.core.transaction_states import TransactionState
    from service.settings import Settings
    from service.wiring.transactions import Gap, Open

_COLUMNS = ("transactional id", "state", "age", "timeout", "producer", "last", "alive", "open in")
_PARTITIONS_SHOWN = 4

app = typer.Typer(
    name="transactions", help="List and abort our transactions.", no_args_is_help=True
)


@app.command(name="list")
def list_(as_json: JsonFlag = False) -> None:
    """List our transactional ids, what they have open, and where readers are held back.

    States and ages are those that the coordinators wrote down in the topic
    __transaction_state: we need the right to read it. Without it, the partitions
    with undecided records and the live members are told. alive: the group has a
    member of that name. OVERDUE: open for twice its timeout; a hanging
    transaction, if no coordinator ends it.

    Examples:
      hapax transactions list
      hapax transactions list --json
    """
    with refusals(as_json=as_json):
        settings = _settings()
        from service.wiring.transactions import transactions  # noqa: PLC0415 - clients are loaded for good settings

        with telling() as told, transactions(settings, told.tell) as asked:
            found = asked.look()
    now_ms = int(time.time() * 1000)
    if as_json:
        print_json(_figures(found, now_ms))
        return
    if found.states is None:
        typer.echo(f"States are not known: {printable(found.reason)}")
        names = ", ".join(sorted(found.live or {})) or "none"
        typer.echo(f"Members of the group: {printable(names)}")
    else:
        print_table(_COLUMNS, [_row(one, found, now_ms) for one in found.states])
    _tell_gaps(found.gaps)


@app.command()
def abort(
    transactional_id: Annotated[str, typer.Argument(help="As transactions list shows it.")],
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """End the transaction that an id has open, by fencing whoever has the id.

    The transaction is rolled back; a commit that had begun is finished. A worker
    that lives under this name loses its producer, builds a new one and takes its
    batch again: nothing is lost or doubled. Twice within 30 s it takes us for a
    twin and leaves. A transaction of which its coordinator knows nothing (a
    hanging one) is not ended by this: use Kafka's kafka-transactions.sh abort.

    Examples:
      hapax transactions abort orders-clean-orders-clean-0
      hapax transactions abort orders-clean/replay --yes
    """
    with refusals(as_json=as_json):
        settings = _settings()
        from service.wiring.transactions import transactions  # noqa: PLC0415 - as in list_

        gaps: list[Gap] = []
        with telling() as told, transactions(settings, told.tell) as asked:
            state = asked.state(transactional_id)
            aborted = state is None or state.undecided
            if aborted:
                told.close()
                confirm(_question(transactional_id, state), yes=yes)
                gaps = asked.abort(transactional_id)
    if as_json:
        print_json({"aborted": aborted, "undecided": [_gap(one) for one in gaps]})
        return
    if not aborted:
        typer.echo(f"{printable(transactional_id)} has no open transaction: nothing to abort")
        return
    typer.echo(f"{printable(transactional_id)} is fenced, and what it had open is ended")
    _tell_gaps(gaps)


def _question(transactional_id: str, state: TransactionState | None) -> str:
    what = "whatever it has open"
    if state is not None:
        age = age_text(state.age_s(int(time.time() * 1000)))
        what = f"its transaction of {age} in {_places(state)}"
    return (
        f"End {what} by fencing {printable(transactional_id)}? A worker that lives under this name"
        " must take its batch again."
    )


def _row(one: TransactionState, found: Open, now_ms: int) -> tuple[str, ...]:
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


def _tell_gaps(gaps: list[Gap]) -> None:
    if not gaps:
        typer.echo("Nothing is undecided: readers reach the end of every partition.")
    for gap in gaps:
        who = ", ".join(gap.blamed) or (
            "nobody that is known: another program, or a hanging transaction"
        )
        typer.echo(
            printable(
                f"{gap.topic}/{gap.partition}: {gap.high - gap.stable:,} undecided from"
                f" {gap.stable:,} on, by {who}"
            )
        )


def _figures(found: Open, now_ms: int) -> dict[str, Any]:
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
        "undecided": [_gap(one) for one in found.gaps],
    }


def _gap(one: Gap) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "last_stable_offset": one.stable,
        "high_watermark": one.high,
        "transactional_ids": one.blamed,
    }


def _settings() -> Settings:
    from service.settings import load_settings  # noqa: PLC0415 - errors of all kinds are shown

    return load_settings(dict(os.environ))
