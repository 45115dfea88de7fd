"""``hapax lag``: how many committed records any consumer group has not read yet."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hapax.commands.screen import (
    JsonFlag,
    one_cluster_settings,
    print_json,
    print_table,
    progress_line,
    refusals,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hapax.core.reader_lag import ReaderLag

_COLUMNS = (
    "partition",
    "committed",
    "stable",
    "end",
    "records",
    "aborted",
    "markers",
    "open",
    "remark",
)
_REST = {"HAPAX_APP": "lag", "HAPAX_INPUT__TOPICS": "_", "HAPAX_OUTPUT__TOPIC": "__"}
"""What a pipeline needs and this command has no use for."""


def lag(
    group: Annotated[str, typer.Argument(help="Any consumer group of the cluster.")],
    topic: Annotated[
        list[str] | None,
        typer.Option(help="Only this topic; repeatable. Default: all in which it has an offset."),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Read to the ends, however long it takes.")
    ] = False,
    as_json: JsonFlag = False,
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
    with refusals(as_json=as_json):
        rest = {name: text for name, text in _REST.items() if not os.environ.get(name)}
        settings = one_cluster_settings(rest)
        from hapax.operations.reader_lag import reader_lags

        with progress_line() as line:
            found = reader_lags(settings, group, topic or (), line.show, exact=exact)
    print_json(_figures(group, found)) if as_json else _show(found)


def _figures(group: str, found: list[ReaderLag]) -> dict[str, Any]:
    return {
        "group": group,
        "records_min": sum(one.records_min for one in found),
        "records_max": sum(one.records_max for one in found),
        "aborted": sum(one.aborted or 0 for one in found),
        "markers_or_removed": sum(one.markers or 0 for one in found),
        "open": sum(one.undecided for one in found),
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "committed": one.committed,
                "log_start": one.log.log_start,
                "last_stable": one.log.last_stable,
                "high_watermark": one.log.high_watermark,
                "records_min": one.records_min,
                "records_max": one.records_max,
                "aborted": one.aborted,
                "markers_or_removed": one.markers,
                "open": one.undecided,
                "remark": _remark(one),
            }
            for one in found
        ],
    }


def _show(found: list[ReaderLag]) -> None:
    rows = [
        (
            f"{one.topic}/{one.partition}",
            "-" if one.committed is None else f"{one.committed:,}",
            f"{one.log.last_stable:,}",
            f"{one.log.high_watermark:,}",
            _range(one.records_min, one.records_max),
            f"{one.aborted or 0:,}",
            f"{one.markers or 0:,}",
            f"{one.undecided:,}",
            _remark(one),
        )
        for one in found
    ]
    lows, highs = _sum(one.records_min for one in found), _sum(one.records_max for one in found)
    aborted, markers = _sum(one.aborted for one in found), _sum(one.markers for one in found)
    undecided = _sum(one.undecided for one in found)
    total = (_range(lows, highs), f"{aborted:,}", f"{markers:,}", f"{undecided:,}", "")
    print_table(_COLUMNS, [*rows, ("total", "", "", "", *total)], numbers=_COLUMNS[1:-1])
    if any(one.uncounted for one in found):
        typer.echo(
            f"At least {lows:,} records, at most {highs:,}: not all offsets were read."
            " --exact reads them all."
        )


def _sum(values: Iterable[int | None]) -> int:
    return sum(value or 0 for value in values)


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _remark(one: ReaderLag) -> str:
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
