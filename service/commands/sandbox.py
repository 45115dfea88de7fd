"""``hapax sandbox``: real Kafka and real Redis on this machine, to try things on."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from contextlib import contextmanager
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from service.core.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from service.sandbox import Sandbox

_PARTITIONS = 4

app = typer.Typer(
    help="Real Kafka and real Redis on this machine, without containers.",
    no_args_is_help=True,
    rich_markup_mode="markdown",  # examples keep their lines
)


class _StopRequested(BaseException):
    """SIGTERM or Ctrl-C: the way out of a wait, for nobody to catch on the way."""


@app.command()
def up(
    nodes: Annotated[int, typer.Option(help="Brokers: 1 or 3.", metavar="1|3")] = 1,
    redis: Annotated[bool, typer.Option(help="Start a Redis, too.")] = True,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="A topic to create, again for more.", metavar="NAME[:PARTITIONS]"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Keep the data in this folder; else they go when the sandbox goes."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, not shell lines.")
    ] = False,
) -> None:
    """Start Kafka and Redis, print the environment that points Hapax to them, and stay.

    Ctrl-C or SIGTERM ends them.

    **Examples**

    `hapax sandbox up`

    `hapax sandbox up --nodes 3 --topic orders:8 --topic invoices:8`

    `hapax sandbox up --json > sandbox.json &`
    """
    from service.sandbox import Sandbox  # noqa: PLC0415 - other commands do not wait for clients

    topics = [_parse_topic(one) for one in topic or []]
    with _stop_signals(), _refusals(), Sandbox(nodes, redis=redis, data_dir=data) as sandbox:
        for name, partitions in topics:
            if not sandbox.kafka.has_topic(name):
                sandbox.create_topic(name, partitions)
        _print_environment(sandbox, as_json=as_json)
        typer.echo("Running. Ctrl-C ends it and its processes.", err=True)
        signal.pause()


@app.command()
def fetch() -> None:
    """Get what the sandbox needs, and start nothing.

    Kafka's files go to the user's cache, once; on Debian, root also gets Java and Redis. Run it
    while an image is built, or before a journey.

    **Example**

    `hapax sandbox fetch`
    """
    from service.sandbox import jars, machine  # noqa: PLC0415 - as above

    with _refusals():
        typer.echo(f"Java: {machine.java()}")
        typer.echo(f"Redis: {machine.redis_server()}")
        typer.echo(f"Kafka {jars.KAFKA_VERSION}: {jars.fetched()}")


def _parse_topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    if not name or not (partitions or "1").isdecimal() or partitions == "0":
        raise typer.BadParameter(f"{text!r} is not NAME or NAME:PARTITIONS.", param_hint="--topic")
    return name, int(partitions or _PARTITIONS)


def _print_environment(sandbox: Sandbox, *, as_json: bool) -> None:
    variables = sandbox.environment()
    if as_json:
        sys.stdout.write(json.dumps(variables) + "\n")
    else:
        for name, value in variables.items():
            sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
    sys.stdout.flush()


@contextmanager
def _refusals() -> Iterator[None]:
    """Show an error that says what to do without the way it came."""
    try:
        yield
    except StopError as error:
        typer.echo(error, err=True)
        raise typer.Exit(error.exit_code) from None


@contextmanager
def _stop_signals() -> Iterator[None]:
    """Leave the block at the first SIGINT or SIGTERM; ignore further ones while servers end."""
    signals = (signal.SIGINT, signal.SIGTERM)

    def stop(_number: int, _frame: FrameType | None) -> None:
        for one in signals:
            signal.signal(one, signal.SIG_IGN)
        raise _StopRequested

    before = {one: signal.signal(one, stop) for one in signals}
    try:
        yield
    except _StopRequested:
        typer.echo("Stopped.", err=True)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
