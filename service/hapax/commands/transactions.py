"""``hapax transactions``: what this pipeline's ids have open, and ending it by hand."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hapax.commands.screen import (
    JsonFlag,
    YesFlag,
    age_text,
    confirm,
    moment_text,
    one_cluster_settings,
    print_json,
    print_table,
    printable,
    progress_line,
    refusals,
)
from hapax.core.errors import ConfigurationError, HapaxError
from hapax.core.offset_moves import Target

if TYPE_CHECKING:
    from hapax.core.transaction_states import Holder, TransactionState
    from hapax.operations.transactions import Gap, Open

COLUMNS = ("transactional id", "state", "age", "timeout", "producer", "last", "alive", "open in")
_PARTITIONS_SHOWN = 4
_NAME_IT = "name a transactional id, or --partition together with --producer-id"


class AbortOutcome(StrEnum):
    """How a hanging transaction is ended."""

    ABORT = "abort"
    COMMIT = "commit"


app = typer.Typer(
    name="transactions", help="List and abort transactions of this pipeline.", no_args_is_help=True
)


@app.command(name="list")
def list_(as_json: JsonFlag = False) -> None:
    """List this pipeline's transactional ids, their transactions, and where readers are blocked.

    States and ages are those that the coordinators stored in the topic __transaction_state: the
    user needs the right to read it. Without it, the partitions
    with undecided records and the live members are shown. alive: the group has a
    member of that name. OVERDUE: open for twice its timeout; a hanging
    transaction, if no coordinator ends it. HANGING: none will; the
    line says what to type. In __consumer_offsets, which needs the right to
    read it, those of this pipeline hold its committed offsets back.

    Examples:
      hapax transactions list
      hapax transactions list --json
    """
    with refusals(as_json=as_json):
        settings = one_cluster_settings()
        from hapax.operations.transactions import kafka_tool, transactions

        with progress_line() as line, transactions(settings, line.show) as asked:
            found = asked.look()
    now_ms = int(time.time() * 1000)
    if as_json:
        print_json(figures(found, now_ms))
        return
    if found.states is None:
        typer.echo(f"States are not known: {printable(found.reason)}")
        names = ", ".join(sorted(found.live or {})) or "none"
        typer.echo(f"Members of the group: {printable(names)}")
    else:
        print_table(COLUMNS, [row(one, found, now_ms) for one in found.states])
    show_gaps(found.gaps)
    if found.untold:
        typer.echo(f"Producers in these partitions are not known: {printable(found.untold)}")
        for gap in found.gaps:
            typer.echo(f"  {printable(kafka_tool(settings, gap, 'describe-producers'))}")
    for what in found.unseen:
        typer.echo(f"Not examined: {printable(what)}")


@app.command()
def abort(
    transactional_id: Annotated[
        str, typer.Argument(help="As transactions list shows it; none with --producer-id.")
    ] = "",
    foreign: Annotated[
        bool,
        typer.Option(
            "--foreign", help="The id belongs to another program; that program is fenced."
        ),
    ] = False,
    partition: Annotated[
        str, typer.Option(metavar="TOPIC/PARTITION", help="Partition of the hanging transaction.")
    ] = "",
    producer_id: Annotated[
        int | None, typer.Option(min=0, help="Producer id of the hanging transaction.")
    ] = None,
    outcome: Annotated[
        AbortOutcome | None,
        typer.Option(
            help="How to end the hanging transaction. Default: abort, if no id of it is known or"
            " it was aborted."
        ),
    ] = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """End the open transaction of an id, by fencing the process that has the id.

    The transaction is rolled back; a commit that had begun is finished. A worker
    that lives under this name loses its producer, builds a new one and takes its
    batch again: nothing is lost or doubled. Twice within 30 s it assumes a second process of its
    name and exits. A hanging transaction, of which its coordinator knows
    nothing, is named by partition and producer, and ended there by a marker:
    with the outcome that the list shows, or what was committed is lost.

    Examples:
      hapax transactions abort orders-clean-orders-clean-0
      hapax transactions abort orders-clean/replay --yes
      hapax transactions abort billing-7 --foreign
      hapax transactions abort --partition orders/3 --producer-id 4711
      hapax transactions abort --partition __consumer_offsets/7 --producer-id 4711 --outcome commit
    """
    with refusals(as_json=as_json):
        if producer_id is not None or partition:
            if transactional_id or not partition or producer_id is None:
                raise ConfigurationError([_NAME_IT])
            _end_hanging(partition, producer_id, outcome, yes=yes, as_json=as_json)
            return
        if not transactional_id:
            raise ConfigurationError([_NAME_IT])
        settings = one_cluster_settings()
        from hapax.operations.transactions import transactions

        gaps: list[Gap] = []
        with progress_line() as line, transactions(settings, line.show) as asked:
            state = asked.state(transactional_id, foreign=foreign)
            aborted = state is None or state.undecided
            if aborted:
                line.close()
                confirm(question(transactional_id, state), yes=yes)
                gaps = asked.abort(transactional_id)
    if as_json:
        print_json({"aborted": aborted, "undecided": [gap_figures(one) for one in gaps]})
        return
    if not aborted:
        typer.echo(f"{printable(transactional_id)} has no open transaction: nothing to abort")
        return
    typer.echo(f"{printable(transactional_id)} is fenced, and its open transaction is ended")
    show_gaps(gaps)


def _end_hanging(
    partition: str, producer_id: int, outcome: AbortOutcome | None, *, yes: bool, as_json: bool
) -> None:
    target = Target.parse(partition)
    if target.partition is None or target.offset is not None:
        raise ConfigurationError([f"--partition {partition}: write TOPIC/PARTITION"])
    settings = one_cluster_settings()
    from hapax.operations.transactions import transactions

    with progress_line() as line, transactions(settings, line.show) as asked:
        one = asked.hanging((target.topic, target.partition), producer_id)
        line.close()
        commit = outcome is AbortOutcome.COMMIT
        if outcome is None and one.transactional_id and one.decided != "aborted":
            raise HapaxError(must_choose(one))
        confirm(marker_question(one, partition, commit=commit), yes=yes)
        gaps = asked.end_hanging(one, commit=commit)
    if as_json:
        print_json({"aborted": not commit, "undecided": [gap_figures(each) for each in gaps]})
        return
    how = "committed" if commit else "rolled back"
    typer.echo(f"the transaction of producer {producer_id} in {printable(partition)} is {how}")
    show_gaps(gaps)


# -- rows, sentences and JSON ------------------------------------------------------------------


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
