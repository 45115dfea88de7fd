"""What the JVM and its Python processes print: one entry for each thing, told like our own lines.

Spark's log (log4j2.properties), the launcher, a JVM that crashes, tasks and business code all write
to two pipes that are one here. A traceback, a stack or the report of a crash is one entry. Left
out is what says nothing, and the tracebacks of connections that have ended: a stop drops the task
that Spark has begun meanwhile, its Python process finds its connection closed, and PySpark prints
that. Nothing went wrong: the task is taken again at the next start.

One thread reads and never waits for whoever reads our log, for a full pipe would hold up the JVM;
another one tells.
"""

from __future__ import annotations

import re
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Thread
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from hapax.settings.redaction import hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Tell = Callable[[int, str, str], None]
    """Level as in Python's logging, who speaks, and the text."""

INFO, WARNING, ERROR = 20, 30, 40
HOLD_S = 0.2
"""How long an entry waits for further lines of it."""
LINE_BYTES_MAX, ENTRY_LINES_MAX, TEXT_CHARS_MAX = 4_096, 500, 2_000
WAITING_MAX = 5_000
"""Lines that are read and not told; more are only counted."""

OUTPUT, JVM, PYTHON, TASK = "output", "jvm", "python", "task"
"""Who speaks where no class of Spark's log does."""

_TRACE: Final = "Traceback (most recent call last):"
_ENDED: Final = ("BrokenPipeError", "ConnectionResetError")
_CHAINED: Final = ("During handling of the above exception", "The above exception was the direct")
_WITHIN: Final = ("Caused by: ", "Suppressed: ")
_IGNORED: Final = "Exception ignored"
_DIED: Final = "Fatal Python error: "
_OF_DEATH: Final = ("Current thread ", "Thread ", "Python runtime state: ", "Extension modules: ")
_OURS: Final = re.compile(r"hapax(?: task| sink)?: ")
"""What a task says before its process ends (task.py), and what the sink says (hapax/spark.py)."""
_CRASH: Final = "#"
_LOGGED: Final = re.compile(
    r"(?:spark|\d\d/\d\d/\d\d \d\d:\d\d:\d\d) (FATAL|ERROR|WARN|INFO|DEBUG|TRACE) ([\w.$]+): ?(.*)"
)
"""As our log4j2.properties have it, or Spark's own where a user has chosen another file."""
_LEVELS: Final = {"FATAL": ERROR, "ERROR": ERROR, "WARN": WARNING}
_BREAKS: Final = re.compile(r"\\[rn]")
_SECRETIVE: Final = re.compile("[=:@]|bearer|basic", re.IGNORECASE)
"""Without one of these there is no secret by its place; to look for it takes long."""
_SILENT: Final = re.compile(
    "WARNING: Using incubator modules|Setting default log level to|To adjust logging level use"
    r"|Using Spark's default log4j profile|(?:NOTE: )?Picked up \w*JAVA\w*OPTIONS"
    "|PySpark worker failed with exception:$"
    "|(?:Starting )?Streaming TransformWithStateInPandas Python worker"  # five lines for each start
)
_SILENT_LOGS: Final = re.compile(
    r"Unable to load native-hadoop library|Your hostname, .* resolves to a loopback address"
    r"|Set SPARK_LOCAL_IP if you need"
)
_HEADS: Final = tuple(
    (re.compile(form), level, logger)
    for form, level, logger in (
        (_OURS.pattern, WARNING, TASK),
        (_DIED, ERROR, PYTHON),
        ("#$", ERROR, JVM),
        (r"Exception in thread |(?:\w+[.$])+\w*(?:Exception|Error)\b", ERROR, JVM),
        ("(?:Terminating|Aborting) due to java|Error: |Error occurred during", ERROR, JVM),
        (r"WARNING: |.*\bVM warning: ", WARNING, JVM),
        ("", INFO, OUTPUT),
    )
)
"""What is not a line of the log, by its beginning."""


class Entry(NamedTuple):
    """One thing that was said."""

    level: int
    logger: str
    text: str


class Entries:
    """Lines in, entries out."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def held(self) -> bool:
        """Whether an entry may go on with the next line."""
        return bool(self._lines)

    def take(self, line: str) -> Iterator[Entry]:
        """Yield what is complete now."""
        line = line.rstrip()
        if not line:
            return  # between two parts of a traceback as well
        if _SECRETIVE.search(line):
            line = hidden(line)  # before it is cut: a name at the one end tells of the other
        if not self._goes_on(line):
            yield from self.flush()
        self._lines.append(line)

    def flush(self) -> Iterator[Entry]:
        """Yield what is held: nothing of it will come any more."""
        lines, self._lines = self._lines, []
        if lines and (entry := _entry(lines)) is not None:
            yield entry

    def _goes_on(self, line: str) -> bool:
        lines = self._lines
        if not lines or len(lines) >= ENTRY_LINES_MAX or _LOGGED.match(line):
            return False
        return _belongs(line, lines[0], lines[-1], traced=_TRACE in lines)


def _belongs(line: str, head: str, last: str, *, traced: bool) -> bool:
    """Return whether a line is part of what began with ``head`` and has come to ``last``."""
    if head == _CRASH:
        return line.startswith(_CRASH)
    if line == _TRACE:
        return last.endswith(":") or last.startswith((_IGNORED, *_CHAINED))
    names_error = last.startswith(_IGNORED) or (traced and last[0].isspace())
    chained = traced and line.startswith(_CHAINED)
    of_death = head.startswith(_DIED) and line.startswith(_OF_DEATH)
    return line[0].isspace() or line.startswith(_WITHIN) or names_error or chained or of_death


def _entry(lines: list[str]) -> Entry | None:
    """Return what the lines say together; None: nothing."""
    head, text = lines[0], _joined(lines)
    if _SILENT.match(head) and not lines[1:]:
        return None
    if logged := _LOGGED.match(head):
        said, logger, _ = logged.groups()
        text = " ".join(_BREAKS.sub(" ", text[logged.start(3) :]).split())
        return None if _SILENT_LOGS.match(text) else Entry(_LEVELS.get(said, INFO), logger, text)
    if _TRACE in lines or head.startswith(_IGNORED):
        ended = [line for line in lines if not line[0].isspace()][-1].startswith(_ENDED)
        return None if ended else Entry(ERROR, PYTHON, text)
    level, logger = next((level, who) for form, level, who in _HEADS if form.match(head))
    return Entry(level, logger, _OURS.sub("", text, count=1) if logger == TASK else text)


def _joined(lines: list[str]) -> str:
    """Return lines as one; the end of a traceback says more than its middle."""
    text = " ".join(part for line in lines if (part := line.strip(" \t#")))
    half = TEXT_CHARS_MAX // 2
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:half]} … {text[-half:]}"


class JvmOutput:
    """Tells what comes through a pipe until its end."""

    def __init__(self, pipe: IO[bytes], tell: Tell) -> None:
        self._pipe = pipe
        self._say = tell
        self._waiting: Queue[str | None] = Queue(WAITING_MAX)
        self._dropped = 0
        self._threads = [
            Thread(target=target, name=f"jvm-{target.__name__.strip('_')}", daemon=True)
            for target in (self._read, self._tell_all)
        ]
        for thread in self._threads:
            thread.start()

    def finish(self, within_s: float) -> None:
        """Wait until all is told, where the pipe has come to its end; no longer than that."""
        for thread in self._threads:
            thread.join(within_s)

    def _read(self) -> None:
        with self._pipe as pipe, suppress(ValueError, OSError):
            while line := pipe.readline(LINE_BYTES_MAX):
                try:
                    self._waiting.put_nowait(line.decode("utf-8", "replace"))
                except Full:
                    self._dropped += 1
                while line and not line.endswith(b"\n"):  # what a line has beyond that
                    line = pipe.readline(LINE_BYTES_MAX)
        self._waiting.put(None)

    def _tell_all(self) -> None:
        entries = Entries()
        line: str | None = ""
        while line is not None:
            try:
                line = self._waiting.get(timeout=HOLD_S if entries.held else None)
            except Empty:
                self._tell(entries.flush())
                continue
            self._tell(entries.flush() if line is None else entries.take(line))
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                text = f"{dropped} lines came faster than the log takes them, and are dropped"
                self._tell(iter([Entry(WARNING, OUTPUT, text)]))

    def _tell(self, entries: Iterator[Entry]) -> None:
        for entry in entries:
            with suppress(OSError, ValueError):  # nobody takes our lines any more
                self._say(*entry)
