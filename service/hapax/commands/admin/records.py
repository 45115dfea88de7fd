"""``hapax consume``, ``trace`` and ``lag``: records, what became of one, and what is unread."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from hapax.commands import screen
from hapax.core.errors import ConfigurationError, HapaxError
from hapax.core.records import Coordinates
from hapax.operations.trace import verdict

if TYPE_CHECKING:
    from hapax.cluster.lag import ReaderLag
    from hapax.core.records import Record
    from hapax.operations.trace import Sighting

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
    with screen.refusals(as_json=as_json):
        settings = screen.environment_settings()
        where = start if start in {"beginning", "end"} else screen.point_ms("--from", start)
        from hapax.operations.reading import consume as read

        found = read(
            settings,
            tuple(dict.fromkeys(topic)),
            start=where,
            count=count,
            follow=follow,
            isolation="read_uncommitted" if uncommitted else "read_committed",
        )
        try:
            for records in found:
                for record in records:
                    show_record(record, headers=headers, as_json=as_json)
        except KeyboardInterrupt:  # the usual end of --follow
            return


def show_record(record: Record, *, headers: bool = False, as_json: bool = False) -> None:
    if as_json:
        at = record.coordinates._asdict() | {
            "time": screen.moment_text(record.timestamp_ms),
            "timestamp_ms": record.timestamp_ms,
        }
        typer.echo(json.dumps(at | screen.content_figures(record)))
        return
    key, value = screen.printable(record.key), screen.printable(record.value)
    screen.say(f"{record.coordinates}  {key}  {value}")
    for name, text in record.headers if headers else ():
        screen.say(f"    {name}: {screen.printable(text)}")


def trace(
    which: Annotated[
        str,
        typer.Argument(
            metavar="[ID|PLACE]",
            help=r"An event's id (\x00 stands for a NUL byte), or topic/partition/offset of an "
            "input record, an output or a dead letter.",
        ),
    ] = "",
    event_id: Annotated[
        str, typer.Option("--id", help="An event's id that looks like topic/partition/offset.")
    ] = "",
    since: Annotated[
        str | None,
        typer.Option(
            help="Search from this time on: 24h (ago), or 2030-01-31T12:00:00Z. Default: a place's"
            " own time, for an id 24h."
        ),
    ] = None,
    output_topic: screen.OutputTopics = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65_535,
            help="Telemetry port of a process on this machine: says whether it has read the "
            "record, and for how long it has been in its call.",
        ),
    ] = None,
    as_json: screen.JsonFlag = False,
) -> None:
    r"""Show what happened to a record: waiting, done, dead letter, duplicate or filtered.

    Shows where it is, whether its offset is committed, its outputs and dead
    letter (also those in a transaction that is not decided), and who owns its id.
    Reads inputs and outputs from a time on: use places where you know them, and
    --since where records are old or carry times of their own.
    Exit code 1: nothing was found, or the place is beyond the end of its partition.

    Examples:
      hapax trace orders/3/4711
      kubectl exec orders-clean-0 -- hapax trace orders/3/4711 --port 9464
      hapax trace orders-clean/0/90210
      hapax trace order-815 --since 2h
      hapax trace 'https://shop.example/orders\x00815' --json
    """
    with screen.refusals(as_json=as_json) as line:
        if bool(which) == bool(event_id):
            raise ConfigurationError("name one id, by itself or with --id, or one place")
        since_ms = None if since is None else screen.point_ms("--since", since)
        settings = screen.one_cluster_settings()
        from hapax.operations.local_process import LocalProcess
        from hapax.operations.trace import Trace

        topics = {*settings.read_topics, settings.output.topic, settings.dead_letter.topic}
        more = output_topic or ()
        at = None if event_id else _place(which, topics | set(more))
        which = which or event_id
        process = None if port is None else LocalProcess(settings, port)
        with Trace(settings, line.show, more_topics=more, process=process) as asked:
            from_ms = screen.point_ms("--since", since or "24h")
            if at is not None:
                found = asked.place(at, since_ms)
            else:
                found = asked.event(screen.id_bytes(which), from_ms)
        if not found:
            raise HapaxError(
                f"no record with the id {which} was found from {screen.moment_text(from_ms)} on, in"
                f" {', '.join(settings.input.topics)} or the outputs; --since searches longer"
            )
    if as_json:
        screen.print_json({"records": [_figures(one) for one in found]})
        return
    for one in found:
        for name, text in _lines(one):
            screen.say(f"{name:<10} {text}")
        typer.echo("")


def _place(text: str, topics: set[str | None]) -> Coordinates | None:
    """Return the place that a person means; None for an id.

    Raises ConfigurationError for a place where no record of the pipeline can be: an id that looks
    like one is given by --id, for a mistyped place would be searched as an id, and not be found.
    """
    if not re.fullmatch(r"[^/]+/[-+]?[0-9]+/[-+]?[0-9]+", text):
        return None
    hint = "; for an id that looks like a place use --id"
    try:
        at = Coordinates.parse(text)
    except ValueError:
        problem = f"{text}: partition and offset are numbers from 0 on{hint}"
        raise ConfigurationError(problem) from None
    if at.topic not in topics:
        known = ", ".join(sorted(topic for topic in topics if topic))
        problem = f"{text}: {at.topic} is no topic of this pipeline ({known}){hint}"
        raise ConfigurationError(f"{problem}, for a topic of the transform --output-topic")
    return at


def _lines(one: Sighting) -> list[tuple[str, str]]:
    lines = [("record", str(one.at))]
    if one.record is None:
        gone = "no longer in the topic; what is shown comes from its effects"
        lines.append(("", one.undecodable or gone))
    else:
        lines.append(("time", screen.moment_text(one.record.timestamp_ms)))
    lines.append(("id", screen.printable(one.event_id) or "none"))
    if one.original is not None:
        lines.append(("replay of", str(one.original)))
    group = "none" if one.after is None else f"{one.after:,}"
    lines.append(("committed", f"{'yes' if one.committed else 'no'}, the group is at {group}"))
    for effect in one.effects:
        part = f" part {effect.part}" if effect.part else ""
        seen = "" if effect.visible else " (undecided)"
        lines.append(("dead" if effect.error else "output", f"{effect.at}{part}{seen}"))
    if one.owners is not None:
        owned = ", ".join(f"{owner} ({source})" for source, owner in one.owners.items())
        lines.append(("claim", owned or "none"))
    return [*lines, ("verdict", verdict(one))]


def _figures(one: Sighting) -> dict[str, Any]:
    return {
        "record": str(one.at),
        "there": one.record is not None,
        "undecodable": one.undecodable or None,
        "time_ms": None if one.record is None else one.record.timestamp_ms,
        "id": screen.json_bytes(one.event_id or None),
        "replay_of": None if one.original is None else str(one.original),
        "committed": one.committed,
        "committed_offset": one.after,
        "effects": [
            {
                "at": str(effect.at),
                "kind": "dead_letter" if effect.error else "output",
                "part": effect.part or None,
                "error": effect.error or None,
                "visible": effect.visible,
            }
            for effect in one.effects
        ],
        "claims": None
        if one.owners is None
        else {source: str(owner) for source, owner in one.owners.items()},
        "in_call_seconds": None if one.within is None else one.within.in_call_s,
        "verdict": verdict(one),
    }


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
