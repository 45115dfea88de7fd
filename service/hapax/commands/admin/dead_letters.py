"""``hapax dead-letters``: what failed and why, and another chance for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from hapax.commands import screen
from hapax.core.errors import ConfigurationError
from hapax.core.headers import Failed
from hapax.processing.dead_letters import Wanted

if TYPE_CHECKING:
    from hapax.processing.dead_letters import DeadLetter

_FAILED = [field for field in Failed.__struct_fields__ if field != "truncated"]
_VALUE_SHOWN, _ERROR_SHOWN = 20_000, 80
_COLUMNS: screen.Columns[tuple[DeadLetter, bool]] = {
    "dead letter": lambda row: str(row[0].record.coordinates),
    "time": lambda row: screen.moment_text(row[0].record.timestamp_ms),
    "id": lambda row: screen.printable(row[0].event_id),
    "error": lambda row: row[0].error[:_ERROR_SHOWN] + "…" * (len(row[0].error) > _ERROR_SHOWN),
    "attempts": lambda row: row[0].attempts,
    "source": lambda row: str(row[0].source),
    "replayed": lambda row: "yes" if row[1] else "",
}

Reason = Annotated[
    str, typer.Option("--reason", help="Text that the error contains; case is ignored.")
]
Until = Annotated[
    str | None, typer.Option(help="Records before this time; same format as --since.")
]
Id = Annotated[str, typer.Option("--id", help=r"The event's id; \x00 stands for a NUL byte.")]
Source = Annotated[
    str, typer.Option(help="Where the record failed: topic, topic/partition, or with /offset.")
]

app = typer.Typer(
    name="dead-letters", help="List, show and replay dead letters.", no_args_is_help=True
)


@app.command(name="list")
def list_(
    reason: Reason = "",
    since: screen.Since = None,
    until: Until = None,
    event_id: Id = "",
    source: Source = "",
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, help="How many of the newest to show.")
    ] = 50,
    as_json: screen.JsonFlag = False,
) -> None:
    """List dead letters: when, which id, why, where from, and whether they were replayed.

    The time is the record's own timestamp.

    Examples:
      hapax dead-letters list
      hapax dead-letters list --reason ValueError --since 2h
      hapax dead-letters list --source orders/3 --limit 1000 --json
    """
    with screen.refusals(as_json=as_json) as line:
        wanted = _query(reason, since, until, event_id, source)
        settings = screen.environment_settings().target
        from hapax.operations.dead_letters import DeadLetters

        with DeadLetters(settings, line.show) as letters:
            found = letters.look(wanted, limit)
            topic = letters.topic
    if as_json:
        screen.print_json(
            {
                "topic": topic,
                **screen.fields(found, "count", "replayed", "reasons"),
                "dead_letters": [_figures(one, replayed) for one, replayed in found.letters],
            }
        )
        return
    screen.show(found.letters, _COLUMNS)
    typer.echo(f"{found.count:,} dead letters in {topic}, {found.replayed:,} of them replayed")
    for name, count in found.reasons.items():
        screen.say(f"  {count:,} {name}")
    if found.count > len(found.letters):
        typer.echo(f"the last {len(found.letters):,} are shown; --limit shows more")


@app.command()
def show(
    which: Annotated[
        str,
        typer.Argument(help="topic/partition/offset of dead letter or failed record, or an id."),
    ],
    as_json: screen.JsonFlag = False,
) -> None:
    """Show one dead letter whole: error, headers, key and value; the newest if there are more.

    Examples:
      hapax dead-letters show orders-dead/0/17
      hapax dead-letters show orders/3/4711
      hapax dead-letters show order-815 --json
    """
    with screen.refusals(as_json=as_json) as line:
        event_id = screen.typed_id(which)
        settings = screen.environment_settings().target
        from hapax.operations.dead_letters import DeadLetters

        with DeadLetters(settings, line.show) as letters:
            one, replayed = letters.named(which, event_id)
    if as_json:
        screen.print_json(_figures(one, replayed) | screen.content_figures(one.record))
        return
    lines = {
        "dead letter": str(one.record.coordinates),
        "source": str(one.source),
        "replay of": "" if one.original == one.source else str(one.original),
        "id": screen.printable(one.event_id),
        **screen.fields(one, *_FAILED),
        "time": screen.moment_text(one.record.timestamp_ms),
        "replayed": "yes" if replayed else "no",
        "headers": "" if one.readable else "unreadable: a header name is not text",
    }
    for name, text in lines.items():
        if text or name != "replay of":
            screen.say(f"{name:<12}{text}")
    for header, value in one.record.headers:
        screen.say(f"  {header}: {screen.printable(value)}")
    typer.echo(f"{'key':<12}{_shown(one.record.key)}")
    typer.echo(f"{'value':<12}{_shown(one.record.value)}")


@app.command()
def replay(
    reason: Reason = "",
    since: screen.Since = None,
    until: Until = None,
    event_id: Id = "",
    source: Source = "",
    rate: Annotated[
        float | None, typer.Option(min=0.1, help="Maximum number of records per second.")
    ] = None,
    dry_run: screen.DryRun = False,
    yes: screen.YesFlag = False,
    as_json: screen.JsonFlag = False,
) -> None:
    """Write dead letters back to the input they came from, each once.

    The record goes back as it came, to its own partition, and a note of it to
    the dead-letter topic, in one transaction: if this command is interrupted, run it again and it
    continues where it stopped. What was replayed before is left
    alone; what fails again is a new dead letter. The replay passes the claim of its original. Fix
    the transform first.

    Examples:
      hapax dead-letters replay --dry-run
      hapax dead-letters replay --reason KeyError --since 6h --rate 100
      hapax dead-letters replay --id order-815 --yes --json
    """
    with screen.refusals(as_json=as_json) as line:
        wanted = _query(reason, since, until, event_id, source)
        settings = screen.one_cluster_settings()
        from hapax.operations.dead_letters import Replay

        with Replay(settings, line.show, wanted=wanted, rate=rate) as work:
            outcome = work.preview()
            if outcome.replayed and not dry_run:
                line.close()
                inputs = ", ".join(settings.input.topics)
                screen.confirm(f"Write {outcome.replayed:,} records back to {inputs}?", yes=yes)
                outcome = work.run()
    if as_json:
        screen.print_json({"dry_run": dry_run, **msgspec.to_builtins(outcome)})
        return
    typer.echo(f"{outcome.replayed:,} {'would be replayed' if dry_run else 'replayed'}")
    if outcome.replayed_before:
        typer.echo(f"{outcome.replayed_before:,} left alone: replayed before")
    for why, count in outcome.left.items():
        typer.echo(f"{count:,} left alone: {why}")


def _query(reason: str, since: str | None, until: str | None, event_id: str, source: str) -> Wanted:
    if source.count("/") > 2:  # topic/partition/offset
        problem = f"--source {source}: write topic, topic/partition or topic/partition/offset"
        raise ConfigurationError(problem)
    since_ms = None if since is None else screen.point_ms("--since", since)
    until_ms = None if until is None else screen.point_ms("--until", until)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        problem = f"--since {since} is not before --until {until}: no record can be between them"
        raise ConfigurationError(problem)
    return Wanted(
        reason=reason,
        since_ms=since_ms,
        until_ms=until_ms,
        event_id=screen.id_bytes(event_id),
        source=source,
    )


def _figures(one: DeadLetter, replayed: bool) -> dict[str, Any]:
    return {
        "dead_letter": str(one.record.coordinates),
        "source": str(one.source),
        "original": str(one.original),
        "id": screen.json_bytes(one.event_id),
        **screen.fields(one, "reason", *_FAILED),
        "time_ms": one.record.timestamp_ms,
        "replayed": replayed,
    }


def _shown(value: bytes | None) -> str:
    """Return text as it is but for what a terminal would obey, and other bytes in hex."""
    if value is None:
        return "null"
    more = f" … {len(value):,} bytes in all" if len(value) > _VALUE_SHOWN else ""
    value = value[:_VALUE_SHOWN]
    try:
        text = value.decode("utf-8", "strict" if not more else "ignore")
    except UnicodeDecodeError:
        return f"hex {value.hex()}{more}"
    return "\n".join(screen.printable(line) for line in text.split("\n")) + more
