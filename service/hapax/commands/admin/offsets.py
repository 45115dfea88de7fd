"""``hapax offsets`` and ``hapax lag``: where a group is, here and in a mirror; what is unread."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from hapax.commands import screen
from hapax.commands.admin.offsets_moves import adopt, rewind, set_, skip, translate
from hapax.core.durations import duration_ms
from hapax.core.errors import ConfigurationError, PreflightError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from hapax.cluster.lag import ReaderLag
    from hapax.operations.offsets import Look

PAUSE_MIN_S = 0.2
_SUMS = ("records_min", "records_max", "aborted", "markers_or_removed", "open")
_READERS: screen.Columns[ReaderLag] = {
    "partition": lambda one: f"{one.topic}/{one.partition}",
    "committed": lambda one: one.committed,
    "stable": lambda one: one.log.last_stable,
    "end": lambda one: one.log.high_watermark,
    "records": lambda one: _spread(one.records_min, one.records_max),
    "aborted": lambda one: one.aborted,
    "markers": lambda one: one.markers,
    "open": lambda one: one.undecided,
}
_REST = {"HAPAX_APP": "lag", "HAPAX_INPUT__TOPICS": "_", "HAPAX_OUTPUT__TOPIC": "__"}
"""What a pipeline needs and this command has no use for."""

app = typer.Typer(name="offsets", invoke_without_command=True)
app.command(name="set")(set_)
for command in (rewind, skip, adopt, translate):
    app.command()(command)


@app.callback()
def offsets(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[str, typer.Option(help="Interval of --watch.")] = "2s",
    as_json: screen.JsonFlag = False,
) -> None:
    """Show, per input partition, its offsets, the committed offset, and the lag.

    low: first offset still there. committed: the group's offset. position: where a process
    continues. stable: last stable offset, the end for readers. high:
    end of the log. lag: offsets unread, markers of transactions included. lag
    time: age of the oldest unread record. undecided: offsets after the first open
    transaction. Joins no group. With --watch --json: one object a line.

    Examples:
      hapax offsets
      hapax offsets --watch --interval 5s
      hapax offsets --json
    """
    if context.invoked_subcommand is not None:
        return
    with screen.refusals(as_json=as_json):
        interval_s = min(86_400.0, screen.typed("--interval", interval, duration_ms) / 1000)
        if interval_s < PAUSE_MIN_S:
            raise ConfigurationError(f"--interval {interval}: at least {PAUSE_MIN_S * 1000:g}ms")
        from hapax.operations.offsets import Looks

        with Looks(screen.environment_settings()) as asked:
            if not watch:
                found = asked.look()
                screen.print_json(figures(found)) if as_json else show(found)
                return
            asked.look()  # what is wrong from the start is an error, not a line of the watch
            _watch(asked.look, interval_s, as_json=as_json)


def _watch(look: Callable[[], list[Look]], interval_s: float, *, as_json: bool) -> None:
    """Show a look again and again; brokers that are away for a while end nothing."""
    from rich.console import Console

    console = Console()
    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        # An exception that lands in a callback or a destructor of the client is swallowed there.
        nonlocal interrupted
        interrupted = True
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        while not interrupted:
            began_s = time.monotonic()
            try:
                found = look()
            except PreflightError as error:
                for problem in error.problems:
                    typer.echo(problem, err=True)
            else:
                if as_json:
                    typer.echo(json.dumps(figures(found)))
                else:
                    console.clear()  # on a terminal alone
                    show(found)
            # Brokers that answer slowly are not asked without a pause.
            time.sleep(max(PAUSE_MIN_S, interval_s - (time.monotonic() - began_s)))
    except KeyboardInterrupt:
        return


def figures(found: list[Look]) -> dict[str, Any]:
    now_ms = int(time.time() * 1000)
    lag_s = _longest_s(found, now_ms)
    return {
        "time_ms": now_ms,
        "lag": sum(one.lag for one in found),
        "lag_seconds": None if lag_s is None else round(lag_s, 3),
        "partitions": [
            one.figures()
            | {
                "lag_seconds": one.lag_s(now_ms),
                "stuck": None if one.stuck is None else one.stuck._asdict(),
            }
            for one in found
        ],
    }


def show(found: list[Look]) -> None:
    now_ms = int(time.time() * 1000)
    columns: screen.Columns[Look] = {
        "partition": lambda one: f"{one.topic}/{one.partition}",
        "low": lambda one: one.log.log_start,
        "committed": lambda one: one.committed,
        "position": lambda one: one.position,
        "stable": lambda one: one.log.last_stable,
        "high": lambda one: one.log.high_watermark,
        "lag": lambda one: one.lag,
        "lag time": lambda one: screen.age_text(one.lag_s(now_ms)),
        "undecided": lambda one: one.log.last_stable_offset_lag,
        "remark": _remark,
    }
    lag_s = _longest_s(found, now_ms)
    total: dict[str, screen.Cell] = {
        "partition": "total",
        "lag": sum(one.lag for one in found),
        "lag time": screen.age_text(lag_s),
        "undecided": sum(one.log.last_stable_offset_lag for one in found),
    }
    screen.show(found, columns, total=total)


def _longest_s(found: list[Look], now_ms: int) -> float | None:
    """Return the age of the oldest unread record; None: not known everywhere."""
    ages_s = [age_s for one in found if (age_s := one.lag_s(now_ms)) is not None]
    return max(ages_s, default=0.0) if len(ages_s) == len(found) else None


def _remark(one: Look) -> str:
    if one.lost:
        return f"LOST {one.lost:,}: deleted before they were read"
    if one.stuck is not None:
        place = f"{one.topic}/{one.partition}/{one.stuck.offset}"
        return f"STUCK: the set at {one.stuck.offset} cannot be read; hapax offsets skip {place}"
    if one.position is None:
        return "no committed offset: a start is refused, and says what to set"
    if one.committed is not None and one.committed > one.log.high_watermark:
        return "committed beyond the end: the topic was recreated, or truncated"
    if one.committed is None:
        return "no committed offset yet"
    return "an open transaction holds readers back" if one.log.last_stable_offset_lag else ""


def lag(
    group: Annotated[str, typer.Argument(help="Any consumer group of the cluster.")],
    topic: Annotated[
        list[str] | None,
        typer.Option(help="Only this topic; repeatable. Default: all in which it has an offset."),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Read to the ends, however long it takes.")
    ] = False,
    as_json: screen.JsonFlag = False,
) -> None:
    """Count the committed records that a consumer group has not read yet, by reading them.

    Other tools subtract offsets, and markers of transactions and aborted records
    have offsets, too. records: the true lag. aborted: records of aborted
    transactions up to the stable end. markers: offsets without any record there.
    open: offsets after the first open transaction. Where more lies between
    offset and end than is read at once, records is a range. Needs only
    HAPAX_KAFKA__BOOTSTRAP_SERVERS and, where brokers ask for it, a login.

    Examples:
      hapax lag billing
      hapax lag billing --topic orders-clean --exact
      hapax lag billing --json
    """
    with screen.refusals(as_json=as_json) as line:
        rest = {name: text for name, text in _REST.items() if not os.environ.get(name)}
        settings = screen.one_cluster_settings(rest)
        from hapax.operations.offsets import reader_lags

        found = reader_lags(settings, group, topic or (), line.show, exact=exact)
    same = ("topic", "partition", "committed", "records_min", "records_max", "aborted")
    rows = [
        screen.fields(one, *same, markers_or_removed="markers", open="undecided")
        | msgspec.structs.asdict(one.log)
        | {"remark": _reader_remark(one)}
        for one in found
    ]
    sums = {name: sum(row[name] or 0 for row in rows) for name in _SUMS}
    if as_json:
        screen.print_json({"group": group, **sums, "partitions": rows})
        return
    least, most = sums["records_min"], sums["records_max"]
    total: dict[str, screen.Cell] = {
        "partition": "total",
        "records": _spread(least, most),
        "aborted": sums["aborted"],
        "markers": sums["markers_or_removed"],
        "open": sums["open"],
    }
    screen.show(found, _READERS | {"remark": _reader_remark}, total=total)
    if least < most:
        typer.echo(
            f"At least {least:,} records, at most {most:,}: not all offsets were read."
            " --exact reads them all."
        )


def _spread(least: int | None, most: int | None) -> screen.Cell:
    return least if least == most else f"{least:,} to {most:,}"


def _reader_remark(one: ReaderLag) -> str:
    if one.problem:
        return one.problem
    if one.committed is None:
        return "no committed offset: its client decides where it begins (auto.offset.reset)"
    if not one.placed:
        return (
            "committed after the end: the topic was recreated or truncated, and its client decides"
            " where it continues (auto.offset.reset)"
        )
    if one.deleted:
        return f"LOST {one.deleted:,} offsets: deleted before they were read"
    return "open transactions hold readers back" if one.undecided else ""
