"""``hapax doctor``: where records can be lost, doubled or stuck, before it happens."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from hapax.commands.screen import JsonFlag, refusals
from hapax.core.errors import ConfigurationError, ExitCode
from hapax.operations.doctor.check import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.operations.doctor.check import CheckContext, Finding

_FAILED = 1


def doctor(
    as_json: JsonFlag = False,
    show_all: Annotated[
        bool,
        typer.Option(
            "--all", help="Also list the checks that passed and those that could not be made."
        ),
    ] = False,
    acls: Annotated[
        bool, typer.Option("--acls", help="Print the minimal permissions that this pipeline needs.")
    ] = False,
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="FILE.tar.gz", help="Write an archive for support, without secrets."),
    ] = None,
) -> None:
    """Check brokers, topics, group and claim store, and report what is wrong and how to fix it.

    Settings are those of hapax run, from the environment. It can be run before the first start
    and while the service runs: nothing is joined,
    consumed or produced. docs/doctor.md lists the checks.
    With HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS both clusters are examined, and each finding and
    each list of permissions names its own.
    Exit code 0: no FAIL. 1: at least one. 2: the settings cannot work.

    Examples:
      hapax doctor
      hapax doctor --all
      hapax doctor --json | jq '.findings[] | select(.verdict == "FAIL")'
      hapax doctor --acls
      hapax doctor --bundle support.tar.gz
    """
    with refusals(as_json=as_json, prefix="hapax doctor: "):
        if acls:
            _print_rights(as_json)
            return
        findings, cases, code = _examined()
        if bundle is not None:
            from hapax.operations.doctor.bundle import write_bundle

            write_bundle(bundle, os.environ, findings, *cases)
    from hapax.commands.doctor_screen import figures, show

    findings = _without_secrets(findings)
    if as_json:
        from hapax.commands.screen import print_json

        print_json(figures(findings))
    else:
        show(findings, everything=show_all)
        if bundle is not None:
            typer.echo(f"Written: {bundle}")
    raise typer.Exit(code)


def _examined() -> tuple[Sequence[Finding], tuple[CheckContext | None, CheckContext | None], int]:
    """Return findings, the cases that they belong to, and the exit code."""
    from hapax.operations.doctor.examination import examine, refused
    from hapax.settings import load_settings

    try:
        found = examine(load_settings(os.environ))
    except ConfigurationError as error:
        return refused(error.problems), (None, None), int(ExitCode.CONFIGURATION)
    failed = any(finding.verdict is Verdict.FAIL for finding in found.findings)
    return found.findings, (found.context, found.target), _FAILED if failed else 0


def _without_secrets(findings: Sequence[Finding]) -> list[Finding]:
    from hapax.settings.secrets import Strike, secrets_around

    strike = Strike(secrets_around(os.environ))
    return [
        msgspec.structs.replace(each, saw=strike(each.saw), fix=strike(each.fix))
        for each in findings
    ]


def _print_rights(as_json: bool) -> None:
    from hapax.commands.doctor_screen import rights_figures, show_rights
    from hapax.commands.screen import print_json
    from hapax.operations.doctor.acls import cluster_rights, store_rights
    from hapax.settings import load_settings

    settings = load_settings(os.environ)
    clusters, store = cluster_rights(settings), store_rights(settings)
    if as_json:
        print_json(rights_figures(clusters, store))
    else:
        show_rights(clusters, store)
