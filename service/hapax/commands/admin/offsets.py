"""``hapax offsets``: where a group is, here and in a mirror.

``set``, ``rewind``, ``skip``, ``adopt`` and ``translate`` move offsets by hand.
"""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hapax.cluster.offset_moves import Target
from hapax.commands import screen
from hapax.core.durations import duration_ms
from hapax.core.errors import ConfigurationError, PreflightError
from hapax.core.records import Coordinates

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from hapax.cluster.offset_moves import Move, Skip, Translated
    from hapax.operations.moving import Moving
    from hapax.operations.offsets import Look
    from hapax.settings import Settings

_MOVES: screen.Columns[Move] = {
    "partition": lambda one: str(one.placed),
    "committed": lambda one: one.placed.committed,
    "becomes": lambda one: one.offset,
    "passed": lambda one: one.skipped,
    "again": lambda one: one.again,
    "remark": lambda one: one.remark,
}
_TRANSLATED: screen.Columns[Translated] = {
    "partition": lambda one: f"{one.topic}/{one.partition}",
    "committed": lambda one: one.committed,
    "mirror": lambda one: f"{one.target}/{one.partition}",
    "becomes": lambda one: one.offset,
    "remark": lambda one: (
        f"the mirror begins at {one.first:,}: records before it were deleted"
        if one.cut
        else ""
        if one.record
        else "the end"
    ),
}
_NOTHING = "Nothing was changed: add --yes to apply it."

Yes = Annotated[
    bool, typer.Option("--yes", help="Apply the change. Without this option nothing is changed.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show what would change (the default without --yes).")
]
KeepClaims = Annotated[
    bool,
    typer.Option(
        "--keep-claims",
        help="Keep the claims of the skipped records: they had their effects before a rewind.",
    ),
]
DropState = Annotated[
    bool,
    typer.Option(
        "--drop-state",
        help="Delete the state that the transform keeps; its topic is created again, empty.",
    ),
]


def set_(
    place: Annotated[str, typer.Argument(help="TOPIC, TOPIC/PARTITION or TOPIC/PARTITION/OFFSET.")],
    to: Annotated[
        str,
        typer.Argument(
            help="earliest, latest, outputs, an offset, 24h (ago) or 2030-01-31T12:00:00Z."
        ),
    ] = "",
    keep_claims: KeepClaims = False,
    drop_state: DropState = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: screen.JsonFlag = False,
) -> None:
    """Set the group's offset: the next record that is read there.

    The group must have no members. Records that are passed have no effect, and
    their claims are forgotten, so that a repeat of them is processed;
    --keep-claims where they had their effect before a rewind. Records that are
    read again have their effect again. outputs: after the last records that
    outputs and dead letters name, where the group's offsets have expired. The
    topic's id is kept with the offset. Where the transform keeps state, no record
    that has changed it is read again, unless --drop-state begins without it.

    Examples:
      hapax offsets set orders/3/4711
      hapax offsets set orders/3 latest --yes
      hapax offsets set orders 2030-01-31T12:00:00Z --json
    """
    with screen.refusals(as_json=as_json) as line:
        screen.exclude({"--yes": yes, "--dry-run": dry_run})
        target = Target.parse(place)
        if (target.offset is None) == (not to):
            raise ConfigurationError(f"{place} {to}".strip() + ": name the offset once")
        goal = _goal("TO", to) if to else 0
        if isinstance(goal, int) and to and target.partition is None:
            raise ConfigurationError(f"{place} {to}: an offset belongs to one partition")
        with _moving(screen.environment_settings(), line) as work:
            moves = work.set(target, goal)
            members, state = work.members(), work.state(moves, drop=drop_state)
            done = keep_claims or goal == "outputs"  # what outputs name has had its effect
            forgotten = work.carry_out(moves, keep_claims=done, state=state) if yes else 0
    _show_moves(moves, forgotten, members, done=yes, as_json=as_json, state=state.remark)


def rewind(
    place: Annotated[
        str, typer.Argument(help="TOPIC or TOPIC/PARTITION; default: all inputs.")
    ] = "",
    by: Annotated[int | None, typer.Option(min=1, help="Number of offsets.")] = None,
    to: Annotated[
        str | None,
        typer.Option(help="To the first record since this time: 24h (ago), a time, or earliest."),
    ] = None,
    to_offset: Annotated[int | None, typer.Option(min=0, help="To this offset.")] = None,
    drop_state: DropState = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: screen.JsonFlag = False,
) -> None:
    """Go back: records that had their effect are read again and have it again.

    The group must have no members. Never goes forward: partitions that are not
    beyond the place stay where they are. Claims are left alone: each record
    passes as its own, and what was dropped as a duplicate is dropped again. State
    that they have changed must be dropped as a whole (--drop-state).

    Examples:
      hapax offsets rewind orders/3 --by 100
      hapax offsets rewind --to 2h --yes
      hapax offsets rewind --to earliest --drop-state
      hapax offsets rewind orders/3 --to-offset 4711 --json
    """
    with screen.refusals(as_json=as_json) as line:
        screen.exclude({"--yes": yes, "--dry-run": dry_run})
        if [by, to, to_offset].count(None) != 2:
            raise ConfigurationError("rewind: name one of --by, --to and --to-offset")
        target = Target.parse(place) if place else None
        if target is not None and target.offset is not None:
            raise ConfigurationError(f"{place}: name the offset by --to-offset")
        if to_offset is not None and (target is None or target.partition is None):
            raise ConfigurationError("--to-offset: name the partition, as TOPIC/PARTITION")
        goal: str | int = to_offset or 0
        if to is not None:
            goal = to if to == "earliest" else f"time:{screen.point_ms('--to', to)}"
        with _moving(screen.environment_settings(), line) as work:
            moves = work.rewind(target, by=by, to=goal)
            members, state = work.members(), work.state(moves, drop=drop_state)
            if yes:
                work.carry_out(moves, state=state)
    _show_moves(moves, 0, members, done=yes, as_json=as_json, state=state.remark)


def skip(
    place: Annotated[str, typer.Argument(help="TOPIC/PARTITION/OFFSET where the group is.")],
    dead_letter: Annotated[
        bool,
        typer.Option(
            "--dead-letter",
            help="Also write a dead letter, in the transaction that commits the offset.",
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: screen.JsonFlag = False,
) -> None:
    """Pass one record, also one that cannot be decoded and holds its partition up.

    The group must have no members, and must be at this offset. Of a damaged
    record set all records are passed at once: none of them can be read. With
    --dead-letter its coordinates, and its value where it can be read, are in the
    dead-letter topic; without it nothing is left of it, and its claim is forgotten.

    Examples:
      hapax offsets skip orders/3/4711 --dead-letter
      hapax offsets skip orders/3/4711 --dead-letter --yes
    """
    with screen.refusals(as_json=as_json) as line:
        screen.exclude({"--yes": yes, "--dry-run": dry_run})
        target = Target.parse(place)
        if target.partition is None or target.offset is None:
            raise ConfigurationError(f"{place}: write TOPIC/PARTITION/OFFSET")
        settings = screen.environment_settings()
        letter = settings.dead_letter.topic if dead_letter else None
        if dead_letter and letter is None:
            raise ConfigurationError("HAPAX_DEAD_LETTER__TOPIC is not set: --dead-letter needs it")
        with _moving(settings, line) as work:
            found, move = work.skip(Coordinates(target.topic, target.partition, target.offset))
            members = work.members()
            truncated = found.record is None
            if yes and letter is not None:
                truncated = work.dead_letter(found, move, letter)
            elif yes:
                # What cannot be decoded never made a claim.
                work.carry_out([move], keep_claims=found.record is None)
    _show_skip(found, letter, members, truncated=truncated, done=yes, as_json=as_json)


def adopt(
    group: Annotated[str, typer.Argument(help="The group: HAPAX_APP as it was, or a group.id.")],
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: screen.JsonFlag = False,
) -> None:
    """Continue where another group is: for a pipeline that gets another name.

    Copies its offsets in all partitions that this pipeline reads, once the
    transactions that hold some are decided. Both groups must have no members.
    Claims, records that wait for a later try, and the offsets of the other group
    stay where they are.

    Examples:
      hapax offsets adopt orders
      hapax offsets adopt orders --yes --json
    """
    with screen.refusals(as_json=as_json) as line:
        screen.exclude({"--yes": yes, "--dry-run": dry_run})
        with _moving(screen.environment_settings(), line) as work:
            moves, adopting = work.adopt(group)
            members, remarks = work.members(), adopting.remarks()
            if yes:
                adopting.await_empty(line.show)
                moves, _ = work.adopt(group)  # its members may have come further until they left
                work.carry_out(moves, keep_claims=True)
    _show_moves(moves, 0, members, done=yes, as_json=as_json)
    for remark in () if as_json else remarks:
        screen.say(remark)


def translate(
    group: Annotated[str, typer.Option(help="Consumer group of the input topic.")],
    to_group: Annotated[
        str, typer.Option(help="Group on the other cluster; default: of the same name.")
    ] = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: screen.JsonFlag = False,
) -> None:
    """Find where a consumer group continues when it moves to the mirror of its topic.

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
    with screen.refusals(as_json=as_json) as line:
        screen.exclude({"--yes": yes, "--dry-run": dry_run})
        settings = screen.environment_settings()
        from hapax.operations.offsets import commit_translated, translated

        found = translated(settings, group, line.show)
        if yes:
            commit_translated(settings, to_group or group, found, line.show)
    if as_json:
        names = ("topic", "partition", "committed", "target", "offset", "record", "cut")
        parts = [screen.fields(one, *names) for one in found]
        screen.print_json({"group": to_group or group, "done": yes, "partitions": parts})
        return
    screen.show(found, _TRANSLATED)
    set_there = f"Group {to_group or group} is set on the cluster of the outputs."
    typer.echo(set_there if yes else _NOTHING)


def _moving(settings: Settings, line: screen.ProgressLine) -> Moving:
    from hapax.operations.moving import Moving

    return Moving(settings, line.show)


def _goal(option: str, text: str) -> str | int:
    if text in {"earliest", "latest", "outputs"}:
        return text
    if text.isascii() and text.isdecimal() and len(text) < 20:  # digits of an offset
        return int(text)
    return f"time:{screen.point_ms(option, text)}"


def _show_moves(
    moves: list[Move],
    forgotten: int,
    members: dict[str, str],
    *,
    done: bool,
    as_json: bool,
    state: str = "",
) -> None:
    if as_json:
        screen.print_json(
            {
                "dry_run": not done,
                "moves": [
                    screen.fields(one.placed, "topic", "partition", "committed")
                    | screen.fields(one, "offset", "again", "remark", passed="skipped")
                    for one in moves
                ],
                "claims_forgotten": forgotten,
                "state": state or None,
                "members": [] if done else list(members),
            }
        )
        return
    screen.show(moves, _MOVES)
    if state:
        screen.say(state)
    changed = sum(one.changes for one in moves)
    if not changed:
        typer.echo("No offset changes.")
    elif not done:
        _show_nothing(members)
    else:
        typer.echo(f"{changed:,} offsets were set, {forgotten:,} claims forgotten")


def _show_skip(
    found: Skip,
    letter: str | None,
    members: dict[str, str],
    *,
    truncated: bool,
    done: bool,
    as_json: bool,
) -> None:
    if as_json:
        screen.print_json(
            {
                "dry_run": not done,
                **found.at._asdict(),
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
    screen.say(f"{what}{why} {verb}{also}; the group continues at {found.next}")
    if not done:
        _show_nothing(members)


def _show_nothing(members: dict[str, str]) -> None:
    if members:
        named = ", ".join(f"{name} ({host})" for name, host in members.items())
        screen.say(f"The group has members; stop them first: {named}")
    typer.echo(_NOTHING)


PAUSE_MIN_S = 0.2
app = typer.Typer(name="offsets", invoke_without_command=True)
app.command(name="set")(set_)
for command in (rewind, skip, adopt, translate):
    app.command()(command)


@app.callback()
def offsets(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[str, typer.Option(help="Interval of --watch.")] = "2s",
    as_json: screen.JsonFlag = False,
) -> None:
    """Show, per input partition, its offsets, the committed offset, and the lag.

    low: first offset still there. committed: the group's offset. position: where a process
    continues. stable: last stable offset, the end for readers. high:
    end of the log. lag: offsets unread, markers of transactions included. lag
    time: age of the oldest unread record. undecided: offsets after the first open
    transaction. Joins no group. With --watch --json: one object a line.

    Examples:
      hapax offsets
      hapax offsets --watch --interval 5s
      hapax offsets --json
    """
    if context.invoked_subcommand is not None:
        return
    with screen.refusals(as_json=as_json):
        interval_s = min(86_400.0, screen.typed("--interval", interval, duration_ms) / 1000)
        if interval_s < PAUSE_MIN_S:
            raise ConfigurationError(f"--interval {interval}: at least {PAUSE_MIN_S * 1000:g}ms")
        from hapax.operations.offsets import Looks

        with Looks(screen.environment_settings()) as asked:
            if not watch:
                found = asked.look()
                screen.print_json(figures(found)) if as_json else show(found)
                return
            asked.look()  # what is wrong from the start is an error, not a line of the watch
            _watch(asked.look, interval_s, as_json=as_json)


def _watch(look: Callable[[], list[Look]], interval_s: float, *, as_json: bool) -> None:
    """Show a look again and again; brokers that are away for a while end nothing."""
    from rich.console import Console

    console = Console()
    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        # An exception that lands in a callback or a destructor of the client is swallowed there.
        nonlocal interrupted
        interrupted = True
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        while not interrupted:
            began_s = time.monotonic()
            try:
                found = look()
            except PreflightError as error:
                for problem in error.problems:
                    typer.echo(problem, err=True)
            else:
                if as_json:
                    typer.echo(json.dumps(figures(found)))
                else:
                    console.clear()  # on a terminal alone
                    show(found)
            # Brokers that answer slowly are not asked without a pause.
            time.sleep(max(PAUSE_MIN_S, interval_s - (time.monotonic() - began_s)))
    except KeyboardInterrupt:
        return


def figures(found: list[Look]) -> dict[str, Any]:
    now_ms = int(time.time() * 1000)
    lag_s = _longest_s(found, now_ms)
    return {
        "time_ms": now_ms,
        "lag": sum(one.lag for one in found),
        "lag_seconds": None if lag_s is None else round(lag_s, 3),
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
    now_ms = int(time.time() * 1000)
    columns: screen.Columns[Look] = {
        "partition": lambda one: f"{one.topic}/{one.partition}",
        "low": lambda one: one.log.log_start,
        "committed": lambda one: one.committed,
        "position": lambda one: one.position,
        "stable": lambda one: one.log.last_stable,
        "high": lambda one: one.log.high_watermark,
        "lag": lambda one: one.lag,
        "lag time": lambda one: screen.age_text(one.lag_s(now_ms)),
        "undecided": lambda one: one.log.last_stable_offset_lag,
        "remark": _remark,
    }
    lag_s = _longest_s(found, now_ms)
    total: dict[str, screen.Cell] = {
        "partition": "total",
        "lag": sum(one.lag for one in found),
        "lag time": screen.age_text(lag_s),
        "undecided": sum(one.log.last_stable_offset_lag for one in found),
    }
    screen.show(found, columns, total=total)


def _longest_s(found: list[Look], now_ms: int) -> float | None:
    """Return the age of the oldest unread record; None: not known everywhere."""
    ages_s = [age_s for one in found if (age_s := one.lag_s(now_ms)) is not None]
    return max(ages_s, default=0.0) if len(ages_s) == len(found) else None


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
