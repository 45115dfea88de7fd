"""``hapax sandbox``: real Kafka and real Redis on this machine, to try things on."""

from __future__ import annotations

import json
import re
import shlex
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapax.commands.screen import interruptible, progress, refusals, require_tools

if TYPE_CHECKING:
    from collections.abc import Iterator

_PARTITIONS = 4
_PARTITIONS_MAX = 10_000
PORT_MAX = 65_535
_WRITTEN = "# Written by hapax sandbox up, and written again by the next one.\n"
# The wheel holds no rules: they belong to the checkout that it was installed from, if any.
_RULES = Path(__file__).parents[3] / "deploy" / "monitoring" / "alerts.yaml"

_KafkaVersion = Annotated[
    str | None,
    typer.Option(
        help="Version of Kafka: 3.9, 4.1, 4.3 or 4.4; default: 4.4.",
        metavar="VERSION",
        envvar="SANDBOX_KAFKA",
    ),
]

DataFolder = Annotated[
    Path | None,
    typer.Option(help="Keep the data in this folder. Otherwise they are deleted at the end."),
]
_WithRegistry = Annotated[
    bool, typer.Option("--registry", help="Also a schema registry (109 MB, fetched once).")
]

app = typer.Typer(
    name="sandbox",
    help="Real Kafka and real Redis on this machine, without containers.",
    no_args_is_help=True,
    rich_markup_mode="markdown",  # examples keep their lines
)


@app.callback()
def _installed() -> None:
    require_tools("sandbox")


@app.command()
def up(
    nodes: Annotated[int, typer.Option(help="Brokers: 1 or 3.", metavar="1|3")] = 1,
    kafka: _KafkaVersion = None,
    redis: Annotated[bool, typer.Option(help="Also start Redis.")] = True,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="A topic to create; repeatable.", metavar="NAME[:PARTITIONS]"),
    ] = None,
    data: DataFolder = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Require TLS, authentication and ACLs.")
    ] = False,
    monitoring: Annotated[
        bool, typer.Option("--monitoring", help="Also start Prometheus, which scrapes the workers.")
    ] = False,
    rules: Annotated[
        Path | None,
        typer.Option(help="Its alert rules; default: those of this checkout.", metavar="FILE"),
    ] = None,
    spark_workers: Annotated[
        int,
        typer.Option(
            min=0,
            max=32,
            help="Also start a standalone Spark cluster with so many workers of one core.",
        ),
    ] = 0,
    registry: _WithRegistry = False,
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=PORT_MAX,
            help="Port of the first broker, the others follow it; 0: free ones.",
        ),
    ] = 0,
    redis_port: Annotated[
        int, typer.Option(min=0, max=PORT_MAX, help="Port of Redis; 0: a free one.")
    ] = 0,
    env_file: Annotated[
        Path | None, typer.Option(help="Also write the environment to this file.", metavar="FILE")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, not shell lines.")
    ] = False,
) -> None:
    """Start Kafka and Redis, print the environment that points Hapax to them, and stay.

    Ctrl-C or SIGTERM ends them. Prometheus (--monitoring) watches the worker whose telemetry port
    is printed, and its alerts are on its page, whose address is printed, too. With --secure the
    printed environment holds a login; its secrets are in files.

    Examples:
      hapax sandbox up
      hapax sandbox up --nodes 3 --topic orders:8 --topic invoices:8
      hapax sandbox up --kafka 3.9 --topic orders
      hapax sandbox up --spark-workers 2 --topic orders --topic orders-clean
      hapax sandbox up --registry --topic orders --topic orders-clean
      hapax sandbox up --monitoring --topic orders --topic orders-clean
      hapax sandbox up --secure --topic orders --topic orders-clean
      hapax sandbox up --port 19092 --redis-port 16379 --env-file sandbox.env --topic orders
      hapax sandbox up --json > sandbox.json &
    """
    from hapax.sandbox import Guard, Sandbox, machine, secure_environment

    machine.progress = progress
    topics = [parse_topic(one) for one in topic or []]
    if nodes not in {1, 3}:
        raise typer.BadParameter("A sandbox has 1 node or 3.", param_hint="--nodes")
    if env_file is not None and not _may_write(env_file):
        raise typer.BadParameter(
            f"{env_file} was not written by this command: name another.", param_hint="--env-file"
        )
    if rules is not None and not monitoring:
        raise typer.BadParameter("Rules are for --monitoring.", param_hint="--rules")
    try:
        with (
            interruptible(),
            refusals(),
            _monitoring(rules, data, wanted=monitoring) as more,
            Sandbox(
                nodes,
                redis=redis,
                data_dir=data,
                guarded=Guard if secure else None,
                kafka=kafka,
                spark_workers=spark_workers,
                registry=registry,
            ).listen_on(port, redis_port) as sandbox,
        ):
            sandbox.kafka.create_missing(dict(topics))
            ours = secure_environment(sandbox, redis=redis) if secure else sandbox.environment()
            if registry:
                ours |= sandbox.registry.environment()
            ours |= more
            if env_file is not None:
                lines = [f"{name}={value}\n" for name, value in ours.items()]
                env_file.write_text("".join([_WRITTEN, *lines]))
            exports = (f"export {name}={shlex.quote(value)}" for name, value in ours.items())
            typer.echo(json.dumps(ours) if as_json else "\n".join(exports))
            if spark_workers:
                typer.echo(f"Spark: {sandbox.spark.page_url}", err=True)
            typer.echo("Running. Ctrl-C ends it and its processes.", err=True)
            while True:  # pause() would miss a signal that comes just before it
                time.sleep(0.5)
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)


@app.command()
def fetch(
    kafka: _KafkaVersion = None,
    monitoring: Annotated[
        bool, typer.Option("--monitoring", help="Also install Prometheus.")
    ] = False,
    registry: _WithRegistry = False,
) -> None:
    """Get what the sandbox needs, and leave nothing running.

    Kafka's files go to the user's cache, once, with an archive of its classes: a broker starts in
    half the time. Java and Redis are those of the machine, or else of the extra 'sandbox'. Run it
    while an image is built, or before a journey.

    Examples:
      hapax sandbox fetch
      hapax sandbox fetch --kafka 3.9
      hapax sandbox fetch --registry
    """
    from hapax.sandbox import jars, machine
    from hapax.sandbox.broker import archive_kafka

    machine.progress = progress
    with refusals():
        typer.echo(f"Java: {machine.java()}")
        typer.echo(f"Redis: {machine.redis_server()}")
        if monitoring:
            typer.echo(f"Prometheus: {machine.prometheus()}")
        for lock in (jars.kafka(kafka), *([jars.registry()] if registry else [])):
            typer.echo(f"{lock.title}: {jars.fetched(lock)}")
        try:
            archive_kafka(kafka)
        except machine.SandboxError as error:
            typer.echo(f"Brokers start slower, without an archive of classes: {error}", err=True)


def _may_write(file: Path) -> bool:
    """Whether a file is missing, or holds nothing but what was written here."""
    try:
        return file.read_text().startswith(_WRITTEN)
    except FileNotFoundError:
        return True
    except (OSError, UnicodeDecodeError):
        return False


def parse_topic(text: str) -> tuple[str, int]:
    """Return name and partitions of ``NAME[:PARTITIONS]``."""
    name, _, partitions = text.partition(":")
    count = partitions or str(_PARTITIONS)
    if not count.isascii() or not count.isdecimal() or not 1 <= int(count[:9]) <= _PARTITIONS_MAX:
        raise typer.BadParameter(f"{text!r} is not NAME or NAME:PARTITIONS.", param_hint="--topic")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) or name in {".", ".."}:
        raise typer.BadParameter(
            f"{name!r} cannot name a topic: letters, digits, dots, dashes, underscores.",
            param_hint="--topic",
        )
    return name, int(count)


@contextmanager
def _monitoring(rules: Path | None, data: Path | None, *, wanted: bool) -> Iterator[dict[str, str]]:
    """Run a Prometheus in the block; give the variables that lead workers and people to it."""
    if not wanted:
        yield {}
        return
    from hapax.sandbox import monitoring

    rules = rules or (_RULES if _RULES.is_file() else None)
    folder = None if data is None else data / "prometheus"
    with monitoring(rules=rules, workers=4, data_dir=folder) as prometheus:
        further = ", ".join(map(str, prometheus.worker_ports[1:]))
        typer.echo(f"Prometheus: {prometheus.url}/alerts", err=True)
        typer.echo(f"Alert rules: {rules or 'none; name a file by --rules'}", err=True)
        typer.echo(f"HAPAX_TELEMETRY__PORT of further workers: {further}", err=True)
        yield prometheus.environment()
