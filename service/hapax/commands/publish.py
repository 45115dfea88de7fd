"""``hapax publish``: lines to records, each with an id, each known to be delivered."""

from __future__ import annotations

import os
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import msgspec
import typer

from hapax.commands import screen
from hapax.core.errors import ConfigurationError, ExitCode
from hapax.operations.rows import RowForm
from hapax.processing.identity import id_source

if TYPE_CHECKING:
    from hapax.kafka.produce.publish import Sender
    from hapax.operations.publish_spooled import SpooledSummary
    from hapax.publish import PublisherOptions
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
    header: screen.Headers = None,
    value_pointer: Annotated[
        str, typer.Option(metavar="/POINTER", help="JSON pointer to the text that is the value.")
    ] = "",
    form: Annotated[
        RowForm,
        typer.Option("--format", help="Of the lines; csv has a header, its rows become objects."),
    ] = "lines",
    transactional: Annotated[
        bool, typer.Option("--transactional", help="All lines in one transaction, or none.")
    ] = False,
    spool: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Accept lines on disk first; started again it continues there."
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad-lines", help="Leave out what cannot be a record.")
    ] = False,
    disk_max: Annotated[str, typer.Option(help="Most that the spool takes of its disk.")] = "1GiB",
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Take a spool that was moved or restored in full.")
    ] = False,
    resume_at: Annotated[
        int | None,
        typer.Option(
            min=1, help="First number of the spool that is not in Kafka (docs/publish.md)."
        ),
    ] = None,
    skip: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="SEQUENCE", help="Leave out a record that brokers refuse."),
    ] = None,
    as_json: screen.JsonFlag = False,
) -> None:
    """Write lines as records, each with an id in its header message-id.

    Acknowledged by all in-sync replicas, never doubled by own retries. Lines with
    the same id are one event to a pipeline with claims: with --id-pointer or
    --id-from-content a file can be published again after a failure. The header is
    the first of HAPAX_DEDUP__ID that is one. Empty lines are left out.
    Exit code 1: not everything was delivered; the count says how much.

    With --spool each line of a file is published exactly once, whatever dies: run
    again, it continues after the last line that was accepted; a file that begins
    with other content is exit code 6. The id is then SPOOL/NUMBER, unless an option
    names one. SIGTERM and Ctrl-C end it; what is not in Kafka then stays on disk
    for the next run. Only HAPAX_APP and HAPAX_KAFKA__BOOTSTRAP_SERVERS are needed.

    Examples:
      hapax publish orders.jsonl --id-pointer /order/id --key-pointer /customer
      echo '{"n": 1}' | hapax publish --header origin=desk
      hapax publish orders.jsonl --id-from-content --transactional --json
      hapax publish orders.csv --format csv --topic orders --spool spool
      journalctl -f -o json | hapax publish --topic journal --spool spool
    """
    with screen.refusals(as_json=as_json) as line:
        ids = {"--id": event_id is not None, "--id-pointer": bool(id_pointer)}
        screen.exclude(ids | {"--id-from-content": id_from_content})
        screen.exclude({"--key": key is not None, "--key-pointer": bool(key_pointer)})
        screen.exclude({"--transactional": transactional, "--spool": spool is not None})
        needing = {
            "--skip-bad-lines": skip_bad,
            "--adopt": adopt,
            "--resume-at": resume_at,
            "--skip": skip,
        }
        for option, given in needing.items():
            if given and spool is None:
                raise ConfigurationError([f"{option} needs --spool DIR"])
        if topic is None or spool is None:
            settings = screen.environment_settings()
        else:  # of app and Kafka alone
            from hapax.publish.publisher import publish_settings

            settings = publish_settings(os.environ)
        named = (source.header for source in map(id_source, settings.dedup.id))
        from hapax.operations.publish import CONTENT, RANDOM, SPOOL, Lines

        how = Lines(
            topic=_topic(topic, settings),
            form=form,
            key=None if key is None else key.encode("utf-8", "surrogateescape"),
            key_pointer=_pointer("--key-pointer", key_pointer),
            id=None if event_id is None else event_id.encode("utf-8", "surrogateescape"),
            id_pointer=_pointer("--id-pointer", id_pointer),
            id_from=CONTENT if id_from_content else SPOOL if spool else RANDOM,
            value_pointer=_pointer("--value-pointer", value_pointer),
            id_header=next(filter(None, named), "message-id"),
            headers=tuple(parse_header(text) for text in header or ()),
        )
        if spool is not None:
            from hapax.operations.publish_spooled import publish_spooled

            options: PublisherOptions = {
                "disk_max_bytes": screen.typed("--disk-max", disk_max, _disk_bytes),
                "adopt": adopt,
                "resume_at": resume_at,
                "skip_at": tuple(skip or ()),
            }
            with _opened(file) as lines:
                spooled = publish_spooled(
                    settings,
                    lines.fileno(),
                    file=file,
                    how=how,
                    skip_bad=skip_bad,
                    spool=spool,
                    options=options,
                    tell=line.show,
                    warn=lambda text: screen.say(text, err=True),
                )
            _show_spooled(spooled, as_json=as_json)
            return
        from hapax.operations.publish import file_bytes, publish as run

        with _opened(file) as lines:
            size = None if file == "-" else file_bytes(lines.fileno())
            done = run(settings, how, lines, line.show, transactional=transactional, size=size)
    _show(done, how.topic, as_json=as_json)


def _show(done: Sender, topic: str, *, as_json: bool) -> None:
    if as_json:
        found = screen.fields(done, "failed", "reasons", published="delivered", first_lines="first")
        screen.print_json({"topic": topic, **found})
    else:
        typer.echo(f"{done.delivered:,} published to {topic}")
        for reason, count in done.reasons.items():
            line = f" (first: line {done.first[reason]})" if reason in done.first else ""
            screen.say(f"{count:,} failed: {reason}{line}", err=True)
    if done.failed:
        if not as_json:
            typer.echo(f"{done.failed:,} records were not delivered", err=True)
        raise typer.Exit(ExitCode.UNEXPECTED)


def _show_spooled(done: SpooledSummary, *, as_json: bool) -> None:
    if as_json:
        screen.print_json(msgspec.to_builtins(done))
        return
    left_out = f", {done.skipped:,} lines left out" if done.skipped else ""
    left_out += f", {done.records_skipped:,} records left out" if done.records_skipped else ""
    where = "all of the spool is in Kafka"
    if done.waiting:
        where = f"{done.waiting:,} records remain in the spool: run it again to publish them"
    why = f"{done.stopped}: " if done.stopped else ""
    typer.echo(f"{why}{done.accepted:,} accepted for {done.topic}{left_out}; {where}")


def _opened(file: str) -> AbstractContextManager[IO[bytes]]:
    if file == "-":
        return nullcontext(sys.stdin.buffer)
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
        problem = f"name the topic: --topic with one of {', '.join(settings.input.topics)}"
        raise ConfigurationError([problem])
    return settings.input.topics[0]


def _disk_bytes(text: str) -> int:
    from hapax.settings.value_types import size_bytes
    from hapax.spool.group_commit import DISK_MIN_BYTES

    found = size_bytes(text)
    if found < DISK_MIN_BYTES:
        raise ValueError(f"a spool takes {DISK_MIN_BYTES >> 10}KiB at least")
    return found


def _pointer(option: str, text: str) -> str:
    if text and not text.startswith("/"):
        problem = f"{option} {text}: a JSON pointer begins with a slash, /order/id"
        raise ConfigurationError([problem])
    return text


def parse_header(text: str) -> tuple[str, bytes]:
    """Return name and value of ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    # A name must be UTF-8; what the shell handed over in other bytes is none.
    if not name or not equals or any("\ud800" <= each <= "\udfff" for each in name):
        raise ConfigurationError([f"--header {text}: write NAME=VALUE"])
    return name, value.encode("utf-8", "surrogateescape")
