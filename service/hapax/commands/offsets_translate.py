"""``hapax offsets translate``: a group's offsets in a topic to those in its mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hapax.commands.offsets_moves import DryRun, Yes, require_one
from hapax.commands.screen import (
    JsonFlag,
    environment_settings,
    print_json,
    print_table,
    progress_line,
    refusals,
)

if TYPE_CHECKING:
    from hapax.core.translation import Translated

_COLUMNS = ("partition", "committed", "mirror", "becomes", "remark")


def translate(
    group: Annotated[str, typer.Option(help="Consumer group of the input topic.")],
    to_group: Annotated[
        str, typer.Option(help="Group on the other cluster; default: of the same name.")
    ] = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: JsonFlag = False,
) -> None:
    """Find where a consumer group goes on when it moves to the mirror of its topic.

    For a pipeline without a transform whose outputs go to another cluster. The
    place is exact: the first record there that comes from the committed offset
    or a later one, so that nothing is read twice or left out. The group must be
    stopped, and the mirror must have come as far. With --yes the places are
    committed there, for a group without members.

    Examples:
      hapax offsets translate --group billing
      hapax offsets translate --group billing --yes
      hapax offsets translate --group billing --to-group billing-eu --json
    """
    with refusals(as_json=as_json):
        require_one(yes=yes, dry_run=dry_run)
        settings = environment_settings()
        from hapax.operations.offsets import commit_translated, translated

        with progress_line() as line:
            found = translated(settings, group, line.show)
            if yes:
                commit_translated(settings, to_group or group, found, line.show)
    _show(found, to_group or group, done=yes, as_json=as_json)


def _show(found: list[Translated], group: str, *, done: bool, as_json: bool) -> None:
    if as_json:
        print_json({"group": group, "done": done, "partitions": [_figures(one) for one in found]})
        return
    rows = [
        (
            f"{one.topic}/{one.partition}",
            f"{one.committed:,}",
            f"{one.target}/{one.partition}",
            f"{one.offset:,}",
            _remark(one),
        )
        for one in found
    ]
    print_table(_COLUMNS, rows)
    if done:
        typer.echo(f"Group {group} is set on the cluster of the outputs.")
    else:
        typer.echo("Nothing was changed: add --yes to apply it.")


def _figures(one: Translated) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "committed": one.committed,
        "target": one.target,
        "offset": one.offset,
        "record": one.record,
        "cut": one.cut,
    }


def _remark(one: Translated) -> str:
    if one.cut:
        return f"the mirror begins at {one.first:,}: records before it were deleted"
    return "" if one.record else "the end"
