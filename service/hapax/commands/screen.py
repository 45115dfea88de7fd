"""What all commands read and show alike: times, tables, JSON, and errors as sentences.

Bytes of others are made printable before a terminal sees them.
"""

from __future__ import annotations

import base64
import inspect
import os
import re
import signal
import sys
import time
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import wraps
from importlib.util import find_spec
from json import dumps
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hapax.core.errors import ConfigurationError, ExitCode, HapaxError, StopError
from hapax.core.interrupt import CtrlC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from types import FrameType

    from rich.progress import Progress, Task
    from rich.text import Text

    from hapax.core.ports import Tell
    from hapax.core.records import Record
    from hapax.settings import Settings

    Row = TypeVar("Row")
    Cell = str | int | Text | None
    Columns = dict[str, Callable[[Row], Cell]]
    """What a column is called, and what it shows of a row."""

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A variable, in place of the environment's; repeatable."
    ),
]
Since = Annotated[
    str | None, typer.Option(help="Records from this time on: 24h (ago), or 2030-01-31T12:00:00Z.")
]
YesFlag = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show what would be done; change nothing.")
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="A header of each record; repeatable."),
]
SparkMaster = Annotated[
    str | None,
    typer.Option(help="With --engine spark: where it runs. Default: HAPAX_SPARK__MASTER."),
]
OutputTopics = Annotated[
    list[str] | None, typer.Option(help="A topic that the transform chooses; repeatable.")
]

_FLAGS = {
    "target": ("TARGET", "HAPAX_TRANSFORM", "package.module:function, called with each record."),
    "input": ("--input", "HAPAX_INPUT__TOPICS", "Topics to read."),
    "output": ("--output", "HAPAX_OUTPUT__TOPIC", "Topic of outputs that name none."),
    "brokers": ("--brokers", "HAPAX_KAFKA__BOOTSTRAP_SERVERS", "HOST:PORT, as of Kafka."),
    "dead_letter": ("--dead-letter", "HAPAX_DEAD_LETTER__TOPIC", "Topic of records that fail."),
    "app": ("--app", "HAPAX_APP", "Name of the pipeline, and of its consumer group."),
    "engine": ("--engine", "HAPAX_ENGINE", "worker or spark."),
}
"""By parameter: the flag, the variable that it sets, and what that is."""

# A table that is piped into a file or a pager is not folded to 80 columns.
COLUMNS_WITHOUT_TERMINAL = 240
COLUMNS_UNBOUNDED = 10_000


def print_json(value: object) -> None:
    """Print a value as JSON, in which whatever a terminal would obey is escaped."""
    text = dumps(value, indent=2, ensure_ascii=False)
    if not text.replace("\n", "").isprintable():
        text = "".join(
            each if each == "\n" or each.isprintable() else dumps(each)[1:-1] for each in text
        )
    typer.echo(text)


def show(
    rows: Iterable[Row], columns: Columns[Row], *, total: Mapping[str, Cell] | None = None
) -> None:
    """Print one line a row; ``total``: a line of sums below.

    Numbers are at the right, with separators; None is a dash. Text from outside may be in a cell as
    it is: what a terminal would obey is escaped. A cell with colours is a ``rich.text.Text``, and
    its maker's business. On a terminal that is so narrow that words and numbers would be broken,
    each row is a few lines, one for each column.
    """
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    cells = [[column(row) for column in columns.values()] for row in rows]
    if total is not None:
        cells.append([total.get(name, "") for name in columns])
    console = Console()
    if not console.is_terminal:
        console.width = COLUMNS_WITHOUT_TERMINAL
    table = Table(box=SIMPLE)
    for place, name in enumerate(columns):
        words = any(isinstance(line[place], str) and line[place] for line in cells)
        table.add_column(name, justify="left" if words else "right")
    for line in cells:
        table.add_row(*map(_cell, line))
    wide = console.options.update(max_width=COLUMNS_UNBOUNDED)
    if Measurement.get(console, wide, table).minimum <= console.width:
        console.print(table)
        return
    for line in cells:
        lines = Table.grid(padding=(0, 2, 0, 0))
        for name, text in zip(columns, map(_cell, line), strict=True):
            text.overflow = "fold"
            if text.plain:
                lines.add_row(Text(name, style="dim"), text)
        console.print(lines)
        console.print()


def judged(count: int) -> Text:
    """Return a number that should be 0, for a cell."""
    from rich.text import Text

    return Text(f"{count:,}", "bold red" if count else "green")


def _cell(cell: Cell) -> Text:
    from rich.text import Text

    if isinstance(cell, Text):
        return cell
    if cell is None:
        return Text("-")
    # Text, or brackets in a value would be read as markup.
    return Text(printable(cell) if isinstance(cell, str) else f"{cell:,}")


@contextmanager
def refusals(
    *, as_json: bool = False, prefix: str = "", otherwise: int = ExitCode.UNEXPECTED
) -> Iterator[ProgressLine]:
    """Show an error that says what to do without the way it came, and leave with its exit code.

    ``prefix`` comes before each sentence. ``otherwise`` is the code of errors without one. In the
    block there is a line for progress.
    """
    try:
        with closing(ProgressLine()) as line:
            yield line
    except HapaxError as error:
        refuse(getattr(error, "problems", None) or [str(error)], as_json=as_json, prefix=prefix)
        code = error.exit_code if isinstance(error, StopError) else otherwise
        raise typer.Exit(int(code)) from error


def refuse(problems: Iterable[str], *, as_json: bool, prefix: str = "") -> None:
    """Print what is wrong: sentences on stderr, or one object on stdout."""
    found = struck(problems)
    if as_json:
        print_json({"ok": False, "problems": found})
        return
    for problem in found:
        typer.echo(f"{prefix}{problem}", err=True)


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take TARGET and the flags of ``hapax run``, which become variables.

    Its ``given_by`` is what put each variable into the environment.
    """

    @wraps(command)
    def wrapped(context: typer.Context, **given: Any) -> None:
        typed = {flag: (name, given.pop(key)) for key, (flag, name, _text) in _FLAGS.items()}
        given_by = context.obj or {}
        with refusals(as_json=given.get("as_json", False), prefix="hapax: "):
            set_variables(given_by, given.get("env_file"), given.get("assignments"), typed)
        command(given_by=given_by, **given)

    taken: dict[str, tuple[Any, Any]] = {"context": (typer.Context, inspect.Parameter.empty)}
    for key, (flag, name, text) in _FLAGS.items():
        how: Any = {"metavar": key.upper(), "help": f"{text} [{name}]"}
        kind = typer.Option(flag, **how) if flag.startswith("-") else typer.Argument(**how)
        taken[key] = (Annotated[str | None, kind], None)
    _given_by, *own = inspect.signature(command, eval_str=True).parameters.values()
    taken |= {one.name: (one.annotation, one.default) for one in own}
    vars(wrapped)["__signature__"] = inspect.Signature(
        [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for key, (kind, default) in taken.items()
        ]
    )
    return wrapped


def set_variables(
    given_by: dict[str, str],
    files: list[Path] | None,
    assignments: list[str] | None,
    typed: Mapping[str, tuple[str, str | None]],
) -> None:
    """Put variables into the environment of this process and of those that it starts."""
    flags = {flag: (name, text) for flag, (name, text) in typed.items() if text is not None}
    if files or assignments or flags:
        from hapax.settings.env_file import merged

        given = merged(os.environ, files, assignments=assignments, flags=flags, given_by=given_by)
        os.environ.update(given)


def environment_settings(changes: Mapping[str, str] | None = None) -> Settings:
    from hapax.settings import load_settings

    return load_settings({**os.environ, **(changes or {})})


def one_cluster_settings(changes: Mapping[str, str] | None = None) -> Settings:
    """Return the settings for a command that looks for inputs and outputs on one cluster.

    Raises ConfigurationError where they are on two.
    """
    settings = environment_settings(changes)
    if settings.elsewhere:
        raise ConfigurationError(
            "HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS is set, and this command queries one cluster"
            " only: set HAPAX_KAFKA__BOOTSTRAP_SERVERS to the cluster that is meant, and leave the"
            " other out; docs/other-cluster.md lists what works with both"
        )
    return settings


def require_tools(command: str) -> None:
    """End with exit code 2 where the package is without sandbox and demo, as in the images."""
    if find_spec(f"hapax.{command}") is None or find_spec("hapax.sandbox") is None:
        typer.echo(
            f"hapax {command} is not part of this image. Where you want to try it, type in a"
            " checkout of Hapax: pip install '.[sandbox]'",
            err=True,
        )
        raise typer.Exit(int(ExitCode.CONFIGURATION))


def say(text: str, *, err: bool = False) -> None:
    """Print a line; what a terminal would obey is escaped."""
    typer.echo(printable(text), err=err)


def struck(texts: Iterable[str]) -> list[str]:
    """Return texts of errors as a terminal may show them, without a secret of the environment."""
    from hapax.settings.secrets import Strike, secrets_around

    strike = Strike(secrets_around(os.environ))
    return [printable(strike(text)) for text in texts]


def printable(text: str | bytes | None) -> str:
    r"""Return what a terminal only shows, never obeys: ``\x1b`` for an escape; None is ``null``.

    That holds for all that Unicode calls unprintable: control characters, marks that turn the
    direction of text, line separators, halves of pairs. Bytes that are no UTF-8 are escaped, too.
    """
    if text is None:
        return "null"
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def fields(one: object, *same: str, **others: str) -> dict[str, Any]:
    """Return attributes for programs: those of the same name, and ``name="path.to.it"``."""
    paths = dict(zip(same, same, strict=True)) | others
    return {name: attrgetter(path)(one) for name, path in paths.items()}


def content_figures(record: Record) -> dict[str, object]:
    return {
        "headers": [[name, json_bytes(value)] for name, value in record.headers],
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
    }


def json_bytes(value: bytes | None) -> object:
    """Return bytes as JSON can have them: text, or ``{"base64": ...}`` when they are none."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def id_bytes(text: str) -> bytes:
    r"""Return the id that a person typed; ``\x00`` and its kind stand for single bytes.

    That is how ``printable`` writes what is no text: what was shown can be pasted.
    """
    parts = re.split(r"\\x([0-9a-f]{2})", text)
    return b"".join(
        bytes.fromhex(part) if place % 2 else part.encode("utf-8", "surrogateescape")
        for place, part in enumerate(parts)
    )


def typed_id(text: str) -> bytes:
    """Return the id that a person typed; raises ConfigurationError for none."""
    if not text:
        raise ConfigurationError("an event's id is at least one byte: name it")
    return id_bytes(text)


def typed(option: str, text: str, read: Callable[[str], int]) -> int:
    """Return what ``read`` makes of a text; raises ConfigurationError that names the ``option``."""
    try:
        return read(text)
    except ValueError as error:
        raise ConfigurationError(f"{option} {text}: {error}") from None


def point_ms(option: str, text: str) -> int:
    """Read an age (``24h``) or a point in time (ISO 8601) as Unix time, as ``typed`` does."""
    from hapax.core.durations import moment_ms

    return typed(option, text, lambda given: moment_ms(given, int(time.time() * 1000)))


def age_text(seconds: float | None) -> str:
    """Return an age as short as it can be read: ``0.4s``, ``75s``, ``3h20m``, ``2d4h``."""
    if seconds is None:
        return "?"
    if seconds < 10:  # below, tenths say something
        return "0s" if seconds == 0 else f"{max(seconds, 0):.1f}s"
    whole = int(seconds)
    for unit, length, below in (("d", 86_400, "h"), ("h", 3_600, "m")):
        if whole >= 2 * length:
            count, rest = divmod(whole, length)
            small = rest // {"h": 3_600, "m": 60}[below]
            return f"{count}{unit}{small}{below}" if small else f"{count}{unit}"
    return f"{whole}s" if whole < 120 else f"{whole // 60}m{whole % 60}s"  # two minutes


def moment_text(time_ms: int) -> str:
    """Return Unix time as ISO 8601 in UTC; what no calendar holds stays a number."""
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def exclude(options: dict[str, bool]) -> None:
    """Raise ConfigurationError when more than one of these options is given."""
    if sum(options.values()) > 1:
        *names, last = options
        raise ConfigurationError(f"{', '.join(names)} and {last} exclude each other")


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal; elsewhere ``--yes`` must have been said."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{question} There is no terminal to confirm on: add --yes.")
    if not typer.confirm(printable(question), err=True):
        typer.echo("Nothing was done.", err=True)
        raise typer.Exit(ExitCode.UNEXPECTED)


@contextmanager
def progress() -> Iterator[Tell]:
    """Give what shows how far the work in the block is."""
    with closing(ProgressLine()) as line:
        yield line.show


class ProgressLine:
    """Shows how far long work is, on standard error: what, count, rate and the time left.

    On a terminal there is one live line, gone at the end, with a bar, which only pulses where the
    total is not known. Elsewhere, and where TERM is dumb, there is a plain line now and then, and
    none of work that is over before the first.
    """

    INTERVAL_S = 10.0
    _LOOK_S = 0.1

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._what = ""
        self._looked_s, self._shown_s = 0.0, time.monotonic()

    def show(
        self, what: str, done: int | None = None, total: int | None = None, note: str = ""
    ) -> None:
        """Show what is under way, as often as it is called; see ``hapax.core.ports.Tell``."""
        now_s = time.monotonic()
        complete = done is not None and done == total
        if what == self._what and not complete and now_s - self._looked_s < self._LOOK_S:
            return
        self._looked_s = now_s
        progress = self._progress = self._progress or _opened_progress()
        if what != self._what or not progress.tasks:
            self._what = what
            for one in progress.task_ids:
                progress.remove_task(one)
            progress.add_task(printable(what), total=None, figures="")
        (task,) = progress.tasks
        task.total = total  # handed to update, another total would make it forget the rate
        progress.update(task.id, completed=done or 0)
        figures = _figures(task, done, note)
        progress.update(task.id, figures=figures, refresh=True)
        if progress.disable and now_s - self._shown_s >= self.INTERVAL_S:
            self._shown_s = now_s
            say(": ".join(filter(None, (what, figures))), err=True)

    def close(self) -> None:
        """Clear it; it may be shown again."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _opened_progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    live = sys.stderr.isatty() and console.is_terminal and not console.is_dumb_terminal
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
    )
    # Standard output is for results: only what others write to standard error goes above the line.
    progress = Progress(
        *columns, console=console, transient=True, redirect_stdout=False, disable=not live
    )
    progress.start()
    if live:
        console.show_cursor(True)  # hidden, it would stay so after a kill
    return progress


def _figures(task: Task, done: int | None, note: str) -> str:
    words = [printable(note)] if note else []
    if done is not None and task.total:
        words.append(f"{done:,} of {task.total:,.0f} ({task.percentage:.0f}%)")
    elif done is not None:
        words.append(f"{done:,}")
    if done is not None and task.speed:
        words.append(f"{task.speed:,.1f}/s")
    if task.total and task.time_remaining is not None:
        words.append(f"ETA {timedelta(seconds=task.time_remaining)}")
    return ", ".join(words)


@contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGTERM end the block as Ctrl-C does; ignore both while it cleans up."""
    signals = (signal.SIGINT, signal.SIGTERM)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for one in signals:
            signal.signal(one, signal.SIG_IGN)
        raise CtrlC

    before = [signal.signal(one, interrupt) for one in signals]
    try:
        yield
    finally:
        for one, handler in zip(signals, before, strict=True):
            signal.signal(one, handler)
