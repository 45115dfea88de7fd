"""``hapax transactions``: what this pipeline's ids have open, and ending it by hand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hapax.cluster.offset_moves import Target
from hapax.commands import screen
from hapax.core.errors import ConfigurationError, HapaxError

if TYPE_CHECKING:
    from hapax.cluster.transaction_states import Holder, TransactionState
    from hapax.operations.transactions import Gap, Open, Transactions

_PARTITIONS_SHOWN = 4
_NAME_IT = "name a transactional id, or --partition together with --producer-id"
Outcome = Literal["abort", "commit"]
app = typer.Typer(
    name="transactions", help="List and abort transactions of this pipeline.", no_args_is_help=True
)


@app.command(name="list")
def list_(as_json: screen.JsonFlag = False) -> None:
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
    with screen.refusals(as_json=as_json) as line:
        settings = screen.one_cluster_settings()
        from hapax.operations.transactions import Transactions, kafka_tool

        with Transactions(settings, line.show) as asked:
            found = asked.look()
    now_ms = int(time.time() * 1000)
    if as_json:
        screen.print_json(figures(found, now_ms))
        return
    if found.states is None:
        screen.say(f"States are not known: {found.reason}")
        names = ", ".join(sorted(found.live or {})) or "none"
        screen.say(f"Members of the group: {names}")
    else:
        live = found.live
        columns: screen.Columns[TransactionState] = {
            "transactional id": lambda one: one.transactional_id,
            "state": lambda one: f"{one.state} OVERDUE" if one.overdue(now_ms) else one.state,
            "age": lambda one: screen.age_text(one.age_s(now_ms)) if one.undecided else "",
            "timeout": lambda one: screen.age_text(one.timeout_ms / 1000),
            "producer": lambda one: f"{one.producer_id}/{one.epoch}",
            "last": lambda one: screen.moment_text(one.updated_ms),
            "alive": lambda one: "?" if live is None else live.get(one.transactional_id, ""),
            "open in": lambda one: _places(one) if one.undecided else "",
        }
        screen.show(found.states, columns)
    show_gaps(found.gaps)
    if found.untold:
        screen.say(f"Producers in these partitions are not known: {found.untold}")
        for gap in found.gaps:
            screen.say(f"  {kafka_tool(settings, gap, 'describe-producers')}")
    for what in found.unseen:
        screen.say(f"Not examined: {what}")


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
        Outcome | None,
        typer.Option(
            help="How to end the hanging transaction. Default: abort, if no id of it is known or"
            " it was aborted."
        ),
    ] = None,
    yes: screen.YesFlag = False,
    as_json: screen.JsonFlag = False,
) -> None:
    """End the open transaction of an id, by fencing the process that has the id.

    The transaction is rolled back; a commit that had begun is finished. A worker
    that lives under this name loses its producer, builds a new one and takes its
    batch again: nothing is lost or doubled. Twice within 30 s it assumes a second process of its
    name and exits. A hanging transaction, of which its coordinator knows
    nothing, is named by partition and producer, and ended there by a marker:
    with the outcome that the list shows, or what was committed is lost.

    Examples:
      hapax transactions abort orders-clean:orders-clean-0
      hapax transactions abort orders-clean/replay --yes
      hapax transactions abort billing-7 --foreign
      hapax transactions abort --partition orders/3 --producer-id 4711
      hapax transactions abort --partition __consumer_offsets/7 --producer-id 4711 --outcome commit
    """
    with screen.refusals(as_json=as_json) as line:
        hanging = producer_id is not None or bool(partition)
        complete = producer_id is not None and bool(partition)
        if hanging == bool(transactional_id) or hanging != complete:
            raise ConfigurationError(_NAME_IT)
        from hapax.operations.transactions import Transactions

        with Transactions(screen.one_cluster_settings(), line.show) as asked:
            if producer_id is None:
                aborted, told, gaps = _fence(asked, transactional_id, line, foreign, yes=yes)
            else:
                aborted, told, gaps = _mark(asked, partition, producer_id, line, outcome, yes=yes)
    if as_json:
        undecided = [gap_figures(one) for one in gaps or ()]
        screen.print_json({"aborted": aborted, "undecided": undecided})
        return
    screen.say(told)
    if gaps is not None:
        show_gaps(gaps)


def _fence(
    asked: Transactions, name: str, line: screen.ProgressLine, foreign: bool, *, yes: bool
) -> tuple[bool, str, list[Gap] | None]:
    state = asked.state(name, foreign=foreign)
    if state is not None and not state.undecided:
        return False, f"{name} has no open transaction: nothing to abort", None
    line.close()
    what = "whatever it has open"
    if state is not None:
        age = screen.age_text(state.age_s(int(time.time() * 1000)))
        what = f"its transaction of {age} in {_places(state)}"
    question = (
        f"End {what} by fencing {screen.printable(name)}? A live worker with this id "
        "repeats its batch."
    )
    screen.confirm(question, yes=yes)
    return True, f"{name} is fenced, and its open transaction is ended", asked.abort(name)


def _mark(
    asked: Transactions,
    partition: str,
    producer_id: int,
    line: screen.ProgressLine,
    outcome: Outcome | None,
    *,
    yes: bool,
) -> tuple[bool, str, list[Gap]]:
    target = Target.parse(partition)
    if target.partition is None or target.offset is not None:
        raise ConfigurationError(f"--partition {partition}: write TOPIC/PARTITION")
    one = asked.hanging((target.topic, target.partition), producer_id)
    line.close()
    commit = outcome == "commit"
    if outcome is None and one.transactional_id and one.decided != "aborted":
        told = f"what the coordinator of {one.transactional_id} decided is no longer in its log"
        if one.decided:
            told = (
                f"the coordinator of {one.transactional_id} reports that its last transaction here"
                f" was {one.decided}; its marker in this partition may have been lost"
            )
        what = "offsets count" if one.of_offsets else "records visible"
        raise HapaxError(
            f"{told}: --outcome commit makes its {what}, --outcome abort drops them permanently"
        )
    question = (
        f"{'Commit' if commit else 'Roll back'} what producer {producer_id} (epoch"
        f" {one.epoch}) has open in {partition} from {one.start} on, last written"
        f" {_since(one)} ago? No coordinator knows of it."
    )
    screen.confirm(question, yes=yes)
    how = "committed" if commit else "rolled back"
    told = f"the transaction of producer {producer_id} in {partition} is {how}"
    return not commit, told, asked.end_hanging(one, commit=commit)


def _since(one: Holder) -> str:
    return screen.age_text((time.time() * 1000 - one.last_ms) / 1000)


def _places(one: TransactionState) -> str:
    shown = [f"{topic}/{number}" for topic, number in one.partitions[:_PARTITIONS_SHOWN]]
    more = len(one.partitions) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def show_gaps(gaps: list[Gap]) -> None:
    if not gaps:
        typer.echo("No transaction is open: readers reach the end of every partition.")
    for gap in gaps:
        who = ", ".join(gap.blamed) or (
            "an unknown producer: another program, or a hanging transaction"
        )
        what = f"{gap.high - gap.stable:,} undecided from {gap.stable:,} on, by {who}"
        if gap.of_offsets:
            what = f"offsets of {who} are held back: the group cannot read them and waits"
        screen.say(f"{gap.topic}/{gap.partition}: {what}")
        for one in gap.holders or ():
            state = one.transactional_id or "unknown transactional id"
            if one.hanging:
                was = f", it was {one.decided}" if one.decided else ""
                state = f"HANGING, no coordinator knows of it{was}; end it: {way_out(one)}"
            screen.say(
                f"  producer {one.producer_id}, epoch {one.epoch}, from {one.start:,} on, last"
                f" written {_since(one)} ago: {state}"
            )


def way_out(one: Holder) -> str:
    """Return what to type to end a hanging transaction as it was decided."""
    outcome = {"committed": " --outcome commit", "aborted": " --outcome abort"}
    return (
        f"hapax transactions abort --partition {one.topic}/{one.partition}"
        f" --producer-id {one.producer_id}{outcome.get(one.decided or '', '')}"
    )


def figures(found: Open, now_ms: int) -> dict[str, Any]:
    return {
        "states_known": found.states is not None,
        "reason": found.reason,
        "transactions": [
            {
                **screen.fields(one, "transactional_id", "state", "undecided", "timeout_ms"),
                **screen.fields(one, "producer_id", "epoch", "updated_ms"),
                "overdue": one.overdue(now_ms),
                "age_seconds": one.age_s(now_ms),
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
    return {
        **screen.fields(one, "topic", "partition", last_stable="stable", high_watermark="high"),
        "transactional_ids": one.blamed,
        "holds_back": "offsets" if one.of_offsets else "records",
        "producers": None
        if one.holders is None
        else [
            {
                **screen.fields(each, "producer_id", "epoch", "transactional_id", "hanging"),
                **screen.fields(each, "decided", start_offset="start", last_written_ms="last_ms"),
                "end_with": way_out(each) if each.hanging else None,
            }
            for each in one.holders
        ],
    }
