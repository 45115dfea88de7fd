"""How offsets look, and moves of them: as tables, in sentences, and as JSON."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from hapax.commands.screen import print_json, print_table, printable
from hapax.commands.times import age_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.offset_moves import Move, Skip
    from hapax.operations.offsets import Look

_COLUMNS = (
    "partition",
    "low",
    "committed",
    "position",
    "stable",
    "high",
    "lag",
    "lag time",
    "undecided",
    "remark",
)
_MOVES = ("partition", "committed", "becomes", "passed", "again", "remark")
_NOTHING = "Nothing was changed: add --yes to apply it."


def figures(found: list[Look]) -> dict[str, Any]:
    """Return all of it as JSON can have it."""
    now_ms = int(time.time() * 1000)
    lags_s = [lag_s for one in found if (lag_s := one.lag_s(now_ms)) is not None]
    return {
        "time_ms": now_ms,
        "lag": sum(one.lag for one in found),
        "lag_seconds": round(max(lags_s, default=0.0), 3) if len(lags_s) == len(found) else None,
        "partitions": [
            one.figures()
            | {
                "lag_seconds": one.lag_s(now_ms),
                "stuck": None if one.stuck is None else one.stuck._asdict(),
            }
            for one in found
        ],
    }


def show(found: list[Look]) -> None:
    """Print the table, its sums at the end."""
    now_ms = int(time.time() * 1000)
    rows: list[tuple[str, ...]] = [
        (
            f"{one.topic}/{one.partition}",
            f"{one.log.log_start:,}",
            "-" if one.committed is None else f"{one.committed:,}",
            "-" if one.position is None else f"{one.position:,}",
            f"{one.log.last_stable:,}",
            f"{one.log.high_watermark:,}",
            f"{one.lag:,}",
            age_text(one.lag_s(now_ms)),
            f"{one.log.last_stable_offset_lag:,}",
            _remark(one),
        )
        for one in found
    ]
    ages_s = [one.lag_s(now_ms) for one in found]
    known = [age_s for age_s in ages_s if age_s is not None]
    rows.append(
        (
            "total",
            *[""] * 5,
            f"{sum(one.lag for one in found):,}",
            age_text(max(known, default=0.0) if len(known) == len(ages_s) else None),
            f"{sum(one.log.last_stable_offset_lag for one in found):,}",
            "",
        )
    )
    print_table(_COLUMNS, rows, numbers=_COLUMNS[1:-1])


def _remark(one: Look) -> str:
    if one.lost:
        return f"LOST {one.lost:,}: deleted before they were read"
    if one.stuck is not None:
        place = f"{one.topic}/{one.partition}/{one.stuck.offset}"
        return f"STUCK: the set at {one.stuck.offset} cannot be read; hapax offsets skip {place}"
    if one.position is None:
        return "no committed offset: a start is refused, and says what to set"
    if one.committed is not None and one.committed > one.log.high_watermark:
        return "committed beyond the end: the topic was recreated, or truncated"
    if one.committed is None:
        return "no committed offset yet"
    return "an open transaction holds readers back" if one.log.last_stable_offset_lag else ""


def show_moves(
    moves: Sequence[Move], forgotten: int, members: dict[str, str], *, done: bool, as_json: bool
) -> None:
    """Print what moves, or would move."""
    if as_json:
        print_json(
            {
                "dry_run": not done,
                "moves": [_move_figures(one) for one in moves],
                "claims_forgotten": forgotten,
                "members": [] if done else list(members),
            }
        )
        return
    print_table(_MOVES, [_move(one) for one in moves], numbers=_MOVES[1:-1])
    changed = sum(one.changes for one in moves)
    if not changed:
        typer.echo("No offset changes.")
    elif not done:
        _show_nothing(members)
    else:
        typer.echo(f"{changed:,} offsets were set, {forgotten:,} claims forgotten")


def _move(one: Move) -> tuple[str, ...]:
    committed = one.placed.committed
    return (
        f"{one.placed.topic}/{one.placed.partition}",
        "-" if committed is None else f"{committed:,}",
        f"{one.offset:,}",
        f"{one.skipped:,}",
        f"{one.again:,}",
        one.remark,
    )


def _move_figures(one: Move) -> dict[str, Any]:
    return {
        "topic": one.placed.topic,
        "partition": one.placed.partition,
        "committed": one.placed.committed,
        "offset": one.offset,
        "passed": one.skipped,
        "again": one.again,
        "remark": one.remark,
    }


def show_skip(
    found: Skip,
    letter: str | None,
    members: dict[str, str],
    *,
    truncated: bool,
    done: bool,
    as_json: bool,
) -> None:
    """Print what is passed, or would be."""
    if as_json:
        print_json(
            {
                "dry_run": not done,
                "topic": found.at.topic,
                "partition": found.at.partition,
                "offset": found.at.offset,
                "next": found.next,
                "decodable": found.record is not None,
                "reason": found.reason or None,
                "dead_letter_topic": letter,
                "truncated": truncated if letter else None,
                "members": [] if done else list(members),
            }
        )
        return
    last = found.next - 1
    what = str(found.at) if last == found.at.offset else f"{found.at} to {last}"
    verb = "was passed" if done else "would be passed"
    why = f" (cannot be decoded: {found.reason})" if found.reason else ""
    value = "without its value " if truncated else ""
    also = f", a dead letter {value}{'is' if done else 'would be'} in {letter}" if letter else ""
    typer.echo(printable(f"{what}{why} {verb}{also}; the group continues at {found.next}"))
    if not done:
        _show_nothing(members)


def _show_nothing(members: dict[str, str]) -> None:
    if members:
        named = ", ".join(f"{name} ({host})" for name, host in members.items())
        typer.echo(printable(f"The group has members; stop them first: {named}"))
    typer.echo(_NOTHING)
