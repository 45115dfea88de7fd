"""How ``hapax doctor`` shows findings and rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import typer

from hapax.commands.screen import print_table, printable
from hapax.operations.doctor.check import Finding, Verdict, counts, worst_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.claims.kind import StoreRights
    from hapax.core.rights import Right
    from hapax.operations.doctor.acls import ClusterRights

_COLOURS = {
    Verdict.PASS: typer.colors.GREEN,
    Verdict.WARN: typer.colors.YELLOW,
    Verdict.FAIL: typer.colors.RED,
    Verdict.UNTOLD: typer.colors.BLUE,
}
_LISTED = {Verdict.FAIL, Verdict.WARN}


def figures(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return everything, for programs."""
    seen = counts(findings)
    return {
        "ok": seen[Verdict.FAIL] == 0,
        "counts": seen,
        "findings": msgspec.to_builtins(worst_first(findings)),
    }


def show(findings: Sequence[Finding], *, everything: bool = False) -> None:
    """Print what is wrong, worst first, and one line that sums up; with ``everything`` the rest.

    Before what can happen one day stands what is broken now.
    """
    for finding in worst_first(findings):
        if everything or finding.verdict in _LISTED:
            _line(finding)
    typer.echo(summary(findings, everything=everything))


def summary(findings: Sequence[Finding], *, everything: bool = False) -> str:
    """Return one sentence: how many of each verdict."""
    seen = counts(findings)
    passed, untold = seen[Verdict.PASS], seen[Verdict.UNTOLD]
    rest = f"; {untold} could not be made" if untold else ""
    rest += " (--all lists them)" if untold and not everything else ""
    if not seen[Verdict.FAIL] + seen[Verdict.WARN]:
        return f"All {passed} checks passed{rest}."
    return f"{seen[Verdict.FAIL]} FAIL, {seen[Verdict.WARN]} WARN, {passed} PASS{rest}."


def rights_figures(clusters: Sequence[ClusterRights], store: StoreRights | None) -> dict[str, Any]:
    """Return the rights, for programs. ``outputs``: those on another cluster of the outputs."""
    here, *there = (
        {"servers": each.servers, "kafka": msgspec.to_builtins(each.rights)} for each in clusters
    )
    outputs = there[0] if there else None
    return {**here, "outputs": outputs, "redis": None if store is None else store.line}


def show_rights(clusters: Sequence[ClusterRights], store: StoreRights | None) -> None:
    """Print what must be granted, and what may be."""
    for what, each in zip(("input", "outputs"), clusters, strict=False):
        if len(clusters) > 1:
            typer.echo(f"On the cluster of the {what}, {printable(each.servers)}:")
        _show_rights(each.rights)
    if store is not None:
        typer.echo(f"{store.where}:\n{printable(store.line)}")


def _show_rights(kafka: Sequence[Right]) -> None:
    print_table(
        ("resource", "pattern", "name", "operation", "needed", "for"),
        [
            (
                right.resource,
                right.pattern,
                right.name,
                right.operation,
                "optional" if right.optional else "yes",
                right.reason,
            )
            for right in kafka
        ],
    )


def _line(finding: Finding) -> None:
    mark = typer.style(f"{finding.verdict.value:6}", fg=_COLOURS[finding.verdict], bold=True)
    where = f" on {printable(finding.cluster)}" if finding.cluster else ""
    typer.echo(f"{mark} {finding.check}{where}: {printable(finding.saw)}")
    if finding.fix:
        typer.echo(f"       fix: {printable(finding.fix)}")
