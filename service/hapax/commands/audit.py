"""``hapax audit``: whether the promise was kept, record by record, from the topics alone."""

from __future__ import annotations

from typing import Annotated

import typer

from hapax.commands.screen import JsonFlag, OutputTopics, one_cluster_settings, print_json, refusals
from hapax.commands.times import point_ms
from hapax.core.errors import ConfigurationError, ExitCode
from hapax.operations.audit.result import Compare, EngineName

_ANOMALIES = 1


def audit(
    since: Annotated[
        str | None,
        typer.Option(help="Judge records from this time on: 24h (ago), or 2030-01-31T12:00:00Z."),
    ] = None,
    compare: Annotated[
        Compare,
        typer.Option(help="Which parts of the outputs must match what the transform returns now."),
    ] = Compare.VALUES,
    no_transform: Annotated[
        bool, typer.Option("--no-transform", help="Do not call the transform.")
    ] = False,
    output_topic: OutputTopics = None,
    engine: Annotated[
        EngineName, typer.Option(help="What reads and judges: this process, or Spark.")
    ] = EngineName.LOCAL,
    master: Annotated[
        str | None,
        typer.Option(help="With --engine spark: where it runs. Default: HAPAX_SPARK__MASTER."),
    ] = None,
    examples: Annotated[
        int, typer.Option(min=0, max=1000, help="Examples of each class of anomalies.")
    ] = 5,
    as_json: JsonFlag = False,
) -> None:
    """Read input, outputs and dead letters, and report whether each effect exists exactly once.

    Settings are those of hapax run, from the environment. Every input record
    below the group's committed offsets must have its outputs, or one dead
    letter, or be filtered, or be a duplicate, and nothing else may exist.
    The transform runs again to know what is due. Reads only.
    Exit code 1: something is missing, doubled, out of order, torn or wrong.

    Examples:
      hapax audit
      hapax audit --since 24h --examples 20
      hapax audit --compare counts --output-topic orders-eu
      hapax audit --no-transform --json > audit.json
      hapax audit --engine spark --master spark://spark:7077
    """
    from hapax.commands.audit_screen import AuditScreen, figures, show

    with refusals(as_json=as_json, prefix="hapax audit: ", otherwise=ExitCode.PREFLIGHT):
        if master is not None and engine is not EngineName.SPARK:
            raise ConfigurationError(["--master is an option of --engine spark: name both"])
        given = {} if master is None else {"HAPAX_SPARK__MASTER": master}
        settings = one_cluster_settings(given)
        since_ms = None if since is None else point_ms("--since", since)
        from hapax.operations.audit.run import audit as run
        from hapax.operations.audit.topics import AuditOptions

        options = AuditOptions(
            compare=compare,
            transform=not no_transform,
            output_topics=tuple(output_topic or ()),
            since_ms=since_ms,
            examples_max=examples,
        )
        with AuditScreen() as screen:
            found = run(settings, options, screen.report, engine)
    if as_json:
        print_json(figures(found))
    else:
        show(found)
    raise typer.Exit(0 if found.clean else _ANOMALIES)
