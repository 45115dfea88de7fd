"""``hapax offsets adopt``: the offsets of another group become those of this pipeline."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hapax.commands.offsets_moves import DryRun, Yes, require_one
from hapax.commands.offsets_screen import show_moves
from hapax.commands.screen import (
    JsonFlag,
    environment_settings,
    printable,
    progress_line,
    refusals,
)


def adopt(
    group: Annotated[str, typer.Argument(help="The group: HAPAX_APP as it was, or a group.id.")],
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: JsonFlag = False,
) -> None:
    """Continue where another group is: for a pipeline that gets another name.

    Copies its offsets in all partitions that this pipeline reads, once the
    transactions that hold some are decided. Both groups must have no members. On a
    terminal it asks; elsewhere it needs --yes. Claims, records that wait for a
    later try, and the offsets of the other group stay where they are.

    Examples:
      hapax offsets adopt orders
      hapax offsets adopt orders --yes --json
    """
    with refusals(as_json=as_json):
        require_one(yes=yes, dry_run=dry_run)
        settings = environment_settings()
        from hapax.operations.moving import moving

        with progress_line() as line, moving(settings, line.show) as work:
            moves, adopting = work.adopt(group)
            members, remarks = work.members(), adopting.remarks()
            ask = not (yes or dry_run or as_json) and sys.stdin.isatty()
            if ask:
                show_moves(moves, 0, members, done=False, as_json=False)
                yes = typer.confirm(f"Adopt these offsets of {group}?", err=True)
            if yes:
                adopting.await_empty(line.show)
                moves, _ = work.adopt(group)  # its members may have come further until they left
                work.carry_out(moves, keep_claims=True)
    if yes or not ask:
        show_moves(moves, 0, members, done=yes, as_json=as_json)
    if not as_json:
        for remark in remarks:
            typer.echo(printable(remark))
