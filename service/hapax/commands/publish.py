"""``hapax publish``: lines to records, each with an id, each known to be delivered."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from hapax.commands.screen import (
    JsonFlag,
    environment_settings,
    print_json,
    printable,
    progress_line,
    refusals,
)
from hapax.core.errors import ConfigurationError, ExitCode
from hapax.core.id_sources import id_source

if TYPE_CHECKING:
    from hapax.operations.publish import Lines, PublishSummary
    from hapax.settings import Settings


def publish(
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="One record per line; - is standard input.")
    ] = "-",
    topic: Annotated[
        str | None,
        typer.Option(help="Target topic. Default: HAPAX_INPUT__TOPICS, if it is a single topic."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="The key of every record.")] = None,
    key_pointer: Annotated[
        str, typer.Option(metavar="/POINTER", help="JSON pointer to the key in each line.")
    ] = "",
    event_id: Annotated[
        str | None, typer.Option("--id", help="The id of every record: all lines are one event.")
    ] = None,
    id_pointer: Annotated[
        str, typer.Option(metavar="/POINTER", help="JSON pointer to the id in each line.")
    ] = "",
    id_from_content: Annotated[
        bool,
        typer.Option(
            "--id-from-content", help="The id is a hash of the line. Otherwise it is random."
        ),
    ] = False,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header; repeatable.")
    ] = None,
    transactional: Annotated[
        bool, typer.Option("--transactional", help="All lines in one transaction, or none.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write lines as records, each with an id in its header message-id.

    Acknowledged by all in-sync replicas, never doubled by own retries. Lines with
    the same id are one event to a pipeline with claims: with --id-pointer or
    --id-from-content a file can be published again after a failure. The header is
    the first of HAPAX_DEDUP__ID that is one. Empty lines are left out.
    Exit code 1: not everything was delivered; the count says how much.

    Examples:
      hapax publish orders.jsonl --id-pointer /order/id --key-pointer /customer
      echo '{"n": 1}' | hapax publish --header origin=desk
      hapax publish orders.jsonl --id-from-content --transactional --json
    """
    with refusals(as_json=as_json):
        settings = environment_settings()
        ways = [name for name in (event_id, id_pointer, id_from_content) if name]
        if len(ways) > 1:
            raise ConfigurationError(
                ["--id, --id-pointer and --id-from-content exclude each other"]
            )
        if key is not None and key_pointer:
            raise ConfigurationError(["--key and --key-pointer exclude each other"])
        from hapax.operations.publish import CONTENT, RANDOM, Lines

        how = Lines(
            topic=_topic(topic, settings),
            key=None if key is None else key.encode("utf-8", "surrogateescape"),
            key_pointer=_pointer("--key-pointer", key_pointer),
            id=None if event_id is None else event_id.encode("utf-8", "surrogateescape"),
            id_pointer=_pointer("--id-pointer", id_pointer),
            id_from=CONTENT if id_from_content else RANDOM,
            id_header=_id_header(settings),
            headers=tuple(parse_header(text) for text in header or ()),
        )
        done = _published(settings, how, file, transactional=transactional)
    if as_json:
        print_json(
            {
                "topic": done.topic,
                "published": done.published,
                "failed": done.failed,
                "reasons": done.reasons,
            }
        )
    else:
        typer.echo(f"{done.published:,} published to {done.topic}")
        for reason, count in done.reasons.items():
            typer.echo(f"{count:,} failed: {printable(reason)}", err=True)
    if done.failed:
        if not as_json:
            typer.echo(f"{done.failed:,} records were not delivered", err=True)
        raise typer.Exit(ExitCode.UNEXPECTED)


def _published(settings: Settings, how: Lines, file: str, *, transactional: bool) -> PublishSummary:
    from hapax.operations.publish import publish as run

    with progress_line() as line:
        if file == "-":
            return run(settings, how, sys.stdin.buffer, line.show, transactional=transactional)
        with _opened(file) as lines:
            return run(settings, how, lines, line.show, transactional=transactional)


def _opened(file: str) -> IO[bytes]:
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise ConfigurationError([f"{file} cannot be read: {error.strerror}"]) from error


def _topic(topic: str | None, settings: Settings) -> str:
    if topic is not None:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic):
            raise ConfigurationError([f"--topic {topic}: no topic can have this name"])
        return topic
    if len(settings.input.topics) > 1:
        raise ConfigurationError(
            [f"name the topic: --topic with one of {', '.join(settings.input.topics)}"]
        )
    return settings.input.topics[0]


def _id_header(settings: Settings) -> str:
    named = [source.header for source in map(id_source, settings.dedup.id) if source.header]
    return named[0] if named else "message-id"


def _pointer(option: str, text: str) -> str:
    if text and not text.startswith("/"):
        raise ConfigurationError(
            [f"{option} {text}: a JSON pointer begins with a slash, /order/id"]
        )
    return text


def parse_header(text: str) -> tuple[str, bytes]:
    """Return name and value of ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    # A name must be UTF-8; what the shell handed over in other bytes is none.
    if not name or not equals or any("\ud800" <= each <= "\udfff" for each in name):
        raise ConfigurationError([f"--header {text}: write NAME=VALUE"])
    return name, value.encode("utf-8", "surrogateescape")
