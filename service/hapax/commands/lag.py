"""``hapax lag``: how many committed records any consumer group has not read yet."""

from __future__ import annotations

import os
from operator import attrgetter
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
    from collections.abc import Mapping

    from hapax.core.reader_lag import ReaderLag

_FIGURES = {
    "topic": "topic",
    "partition": "partition",
    "committed": "committed",
    "log_start": "log.log_start",
    "last_stable": "log.last_stable",
    "high_watermark": "log.high_watermark",
    "records_min": "records_min",
    "records_max": "records_max",
    "aborted": "aborted",
    "markers_or_removed": "markers",
    "open": "undecided",
}
_SUMS = ("records_min", "records_max", "aborted", "markers_or_removed", "open")
_COLUMNS = {
    "committed": "committed",
    "stable": "last_stable",
    "end": "high_watermark",
    "records": "records",
    "aborted": "aborted",
    "markers": "markers_or_removed",
    "open": "open",
}
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
        from hapax.operations.offsets import reader_lags

        with progress_line() as line:
            found = reader_lags(settings, group, topic or (), line.show, exact=exact)
    rows = [{**_figures(one), "remark": _remark(one)} for one in found]
    total = {name: sum(row[name] or 0 for row in rows) for name in _SUMS}
    print_json({"group": group, **total, "partitions": rows}) if as_json else _show(rows, total)


def _figures(one: ReaderLag) -> dict[str, Any]:
    return {name: attrgetter(path)(one) for name, path in _FIGURES.items()}


def _show(rows: list[dict[str, Any]], total: dict[str, int]) -> None:
    cells = [(f"{row['topic']}/{row['partition']}", *_cells(row), row["remark"]) for row in rows]
    sums = ("total", *_cells(dict.fromkeys(_FIGURES, "") | total), "")
    print_table(("partition", *_COLUMNS, "remark"), [*cells, sums], numbers=tuple(_COLUMNS))
    least, most = total["records_min"], total["records_max"]
    if least < most:
        typer.echo(
            f"At least {least:,} records, at most {most:,}: not all offsets were read."
            " --exact reads them all."
        )


def _cells(row: Mapping[str, Any]) -> list[str]:
    texts = {
        name: f"{it:,}" if isinstance(it, int) else "-" if it is None else it
        for name, it in row.items()
    }
    least, most = texts["records_min"], texts["records_max"]
    texts["records"] = least if least == most else f"{least} to {most}"
    return [texts[figure] for figure in _COLUMNS.values()]


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
