"""``hapax doctor``: where records can be lost, doubled or stuck, before it happens."""

from __future__ import annotations

import os
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from hapax.commands import screen
from hapax.core.errors import ConfigurationError, ExitCode
from hapax.operations.doctor.check import Finding, Section, Verdict, counts, worst_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.cluster.cluster_state import Right
    from hapax.operations.doctor.check import CheckContext

_FAILED = 1
_COLOURS = {
    Section.BROKEN: "bold red",
    Section.AT_RISK: "bold yellow",
    Section.UNKNOWN: "bold blue",
    Section.FINE: "bold green",
}
_FOLDED = {Section.UNKNOWN, Section.FINE}
_RIGHTS: screen.Columns[Right] = {
    **{name: attrgetter(name) for name in ("resource", "pattern", "name", "operation")},
    "needed": lambda right: "optional" if right.optional else "yes",
    "for": lambda right: right.reason,
}


def doctor(
    as_json: screen.JsonFlag = False,
    show_all: Annotated[
        bool,
        typer.Option(
            "--all", "-v", help="Show each check, also those that are fine or could not be made."
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
    """Check brokers, topics, group and claim store: what is broken, what is at risk, and the fix.

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
    with screen.refusals(as_json=as_json, prefix="hapax doctor: "):
        if acls:
            _print_rights(as_json)
            return
        findings, cases, code = _examined()
        if bundle is not None:
            from hapax.operations.doctor.examination import write_bundle

            write_bundle(bundle, os.environ, findings, *cases)
    from hapax.settings.secrets import Strike, secrets_around

    strike = Strike(secrets_around(os.environ))
    findings = [
        msgspec.structs.replace(each, saw=strike(each.saw), fix=strike(each.fix))
        for each in findings
    ]
    if as_json:
        seen = counts(findings)
        worst = [msgspec.to_builtins(one) | {"group": one.group} for one in worst_first(findings)]
        screen.print_json({"ok": seen[Verdict.FAIL] == 0, "counts": seen, "findings": worst})
    else:
        _show(findings, everything=show_all)
        if bundle is not None:
            typer.echo(f"Written: {bundle}")
    raise typer.Exit(code)


def _examined() -> tuple[Sequence[Finding], tuple[CheckContext | None, CheckContext | None], int]:
    from hapax.operations.doctor.examination import examine, refused

    try:
        found = examine(screen.environment_settings())
    except ConfigurationError as error:
        return refused(error.problems), (None, None), int(ExitCode.CONFIGURATION)
    failed = any(finding.verdict is Verdict.FAIL for finding in found.findings)
    return found.findings, (found.context, found.target), _FAILED if failed else 0


def _print_rights(as_json: bool) -> None:
    from hapax.operations.doctor.acls import cluster_rights, store_rights

    settings = screen.environment_settings()
    clusters, store = cluster_rights(settings), store_rights(settings)
    if as_json:
        # Of the rights, "outputs" are those on another cluster.
        here, *there = (
            {"servers": each.servers, "kafka": msgspec.to_builtins(each.rights)}
            for each in clusters
        )
        redis = None if store is None else store.line
        screen.print_json({**here, "outputs": there[0] if there else None, "redis": redis})
        return
    for what, each in zip(("input", "outputs"), clusters, strict=False):
        if len(clusters) > 1:
            screen.say(f"On the cluster of the {what}, {each.servers}:")
        screen.show(each.rights, _RIGHTS)
    if store is not None:
        typer.echo(f"{store.where}:\n{screen.printable(store.line)}")


def _show(findings: Sequence[Finding], *, everything: bool) -> None:
    """Print the groups, worst first; what is fine is a list of names, unless ``everything``."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for group, colour in _COLOURS.items():
        found = [one for one in worst_first(findings) if one.group is group]
        folded = group in _FOLDED and not everything
        names = f" ({', '.join(dict.fromkeys(one.check for one in found))})" if folded else ""
        if found:
            title = Text(f"{group.value.capitalize()}: {len(found)}", colour)
            console.print(title.append(names, "not bold default"), soft_wrap=True)
        for one in () if folded else found:
            where = f" on {screen.printable(one.cluster)}" if one.cluster else ""
            line = Text(f"  {one.verdict.value:6}", colour)
            line.append(f" {one.check}{where}: {screen.printable(one.saw)}", "not bold default")
            console.print(line, soft_wrap=True)
            if one.fix:
                console.print(Text(f"         fix: {screen.printable(one.fix)}"), soft_wrap=True)
    screen.say(summary(findings))


def summary(findings: Sequence[Finding]) -> str:
    seen = counts(findings)
    passed, unknown = seen[Verdict.PASS], seen[Verdict.UNTOLD]
    rest = f"; {unknown} could not be made" if unknown else ""
    if not seen[Verdict.FAIL] + seen[Verdict.WARN]:
        return f"All {passed} checks passed{rest}."
    return f"{seen[Verdict.FAIL]} FAIL, {seen[Verdict.WARN]} WARN, {passed} PASS{rest}."
