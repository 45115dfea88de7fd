"""``hapax consume``: read a topic as a ``read_committed`` reader does."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hapax.commands.screen import (
    environment_settings,
    json_bytes,
    printable,
    refusals,
)
from hapax.commands.times import moment_text, point_ms

if TYPE_CHECKING:
    from hapax.core.records import Record


def consume(
    topic: Annotated[list[str], typer.Argument(help="Topics to read.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="beginning, end, an age (10m), or a time (2030-01-31T12:00Z).",
        ),
    ] = "beginning",
    count: Annotated[
        int | None, typer.Option("--max", min=1, help="End after this many records.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for further records until Ctrl-C.")
    ] = False,
    headers: Annotated[
        bool, typer.Option("--headers", help="Show headers; JSON always has them.")
    ] = False,
    uncommitted: Annotated[
        bool,
        typer.Option("--uncommitted", help="Also records of open and of aborted transactions."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line for each record.")
    ] = False,
) -> None:
    """Print the records of topics, as a read_committed reader finds them; join no group.

    Each line has coordinates, key and value; bytes that are no text are escaped.
    Ends at the ends that the topics have at the start, unless --follow is given.

    Examples:
      hapax consume orders-priced --max 10
      hapax consume orders-priced orders-dead --headers --follow
      hapax consume orders-priced --from 1h --json | jq .value
    """
    with refusals(as_json=as_json):
        settings = environment_settings()
        where = start if start in {"beginning", "end"} else point_ms("--from", start)
        from hapax.operations.consume import Consuming
        from hapax.operations.consume import consume as read

        wanted = Consuming(
            topics=tuple(dict.fromkeys(topic)),
            start=where,
            count=count,
            follow=follow,
            isolation="read_uncommitted" if uncommitted else "read_committed",
        )
        try:
            for records in read(settings, wanted):
                for record in records:
                    for line in _json(record) if as_json else shown(record, headers=headers):
                        typer.echo(line)
                sys.stdout.flush()
        except KeyboardInterrupt:  # the usual end of --follow
            return


def shown(record: Record, *, headers: bool = False) -> list[str]:
    """Return the lines for one record: coordinates, key, value, and its headers."""
    lines = [f"{record.coordinates}  {_text(record.key)}  {_text(record.value)}"]
    if headers:
        lines += [f"    {printable(name)}: {_text(value)}" for name, value in record.headers]
    return lines


def _text(value: bytes | None) -> str:
    return "null" if value is None else printable(value)


def _json(record: Record) -> list[str]:
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "time": moment_text(record.timestamp_ms),
        "timestamp_ms": record.timestamp_ms,
        "headers": [[name, json_bytes(value)] for name, value in record.headers],
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
    }
    return [json.dumps(fields)]
