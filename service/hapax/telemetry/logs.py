"""Logs: structlog to JSON lines on stdout, or to a person on a terminal.

structlog is imported when logs are configured and not before: see ``_import_structlog``.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import sys
import time
from collections import deque
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TextIO, cast

import msgspec

from hapax.telemetry.events.base import printable, without_user
from hapax.telemetry.line_queue import LineQueue, tell_drops

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

    from hapax.settings.secrets import Strike
    from hapax.telemetry.events.service import ClientEvents

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console"]

_KEPT: Final = frozenset({"app", "instance", "engine", "event", "level", "timestamp", "exc_info"})
_WHO: Final = _KEPT - {"event"}
TROUBLES_MAX: Final = 20
_LEVELS: Final = frozenset({"warning", "error", "critical"})
_FOREIGN: Final = {
    "dead_letter_written": frozenset({"error"}),
    "library_logged": frozenset({"text"}),
    "spark_logged": frozenset({"text"}),
}


LOGGERS: list[FilteringBoundLogger] = []
"""The process's own, once it has one."""


def configure_logs(
    level: Level,
    log_format: Format = "auto",
    *,
    stream: TextIO | None = None,
    to: Callable[[bytes], object] | None = None,
    troubles: Troubles | None = None,
    strike: Strike | None = None,
    **bound: str,
) -> FilteringBoundLogger:
    """Return the process's logger; every line carries ``bound`` (app, instance, engine).

    Warnings and worse are kept by ``troubles``, too. ``strike`` takes secrets out of every text
    but the bound ones, tracebacks included. Without a ``stream`` lines go to standard output,
    by a queue: nothing waits for who reads it; or, as JSON, ``to`` a function.

    Levels below ``level`` cost a call that returns at once. ``auto``: console when ``stream``
    (default: stdout) is a terminal, otherwise one JSON object per line, UTF-8.
    """
    _import_structlog()
    import structlog

    target: object = to and SimpleNamespace(**dict.fromkeys((*_LEVELS, "info", "debug"), to))
    target = target or (None if stream else LineQueue(sys.stdout.fileno()))
    stream = stream or sys.stdout
    console = log_format == "console" or (log_format == "auto" and stream.isatty())
    processors: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if troubles is not None:
        processors.insert(0, troubles)
    if strike is not None:
        processors.insert(0, cast("Processor", _Without(strike)))
    if console:
        colors = stream.isatty() and not os.environ.get("NO_COLOR")
        plain = structlog.dev.plain_traceback
        processors.append(structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain))
        if strike is not None:
            processors.append(lambda _logger, _method, text: strike(cast("str", text)))
        target = target or structlog.PrintLogger(stream)
    else:
        processors.append(structlog.processors.format_exc_info)
        if strike is not None:
            processors.append(cast("Processor", _Without(strike)))
        processors.append(json_line)
        target = target or structlog.BytesLogger(stream.buffer)
    logger = structlog.wrap_logger(
        target,
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        context_class=dict,
    )
    LOGGERS[:] = [cast("FilteringBoundLogger", logger.bind(**bound))]
    return LOGGERS[0]


def of_business(processor: Processor) -> FilteringBoundLogger:
    """Return the process's logger without troubles, for texts that are not the service's."""
    own: Any = copy.copy(LOGGERS[0])
    others = [each for each in vars(own)["_processors"] if not isinstance(each, Troubles)]
    struck = [each._replace(kept=_WHO) if isinstance(each, _Without) else each for each in others]
    vars(own)["_processors"] = [processor, *struck]
    return cast("FilteringBoundLogger", own)


def relay(line: str | bytes) -> bool:
    """Log what business code has logged in a process of this one; return whether it has."""
    import structlog

    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
        level, event, who = (fields.pop(name) for name in ("level", "event", "instance"))
        logger = of_business(lambda _logger, _method, event: event)
    except (LookupError, ValueError):
        return False
    if who == structlog.get_context(logger)["instance"] and fields.pop("timestamp", None):
        getattr(logger, level)(event, **fields)
        return True
    return False


class _Without(NamedTuple):
    """Takes secrets out of a line; what is ``kept`` stays."""

    strike: Strike
    kept: frozenset[str] = _KEPT

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        for key, value in event.items():
            if key not in self.kept:
                event[key] = self.strike.value(value)
        return event


def json_line(_logger: WrappedLogger, _method: str, event: EventDict) -> bytes:
    """Render one line: time, level and event first, the rest in the order it was given."""
    line = {key: event.pop(key) for key in ("timestamp", "level", "event")} | dict(event)
    try:
        return msgspec.json.encode(line, enc_hook=str)
    except (TypeError, ValueError):
        # Lone surrogates, and keys that JSON has not: rare, slower, but never a lost line.
        return json.dumps(line, default=str, skipkeys=True).encode("ascii")


class Trouble(NamedTuple):
    """One line of the log, short. ``at_s``: Unix time."""

    at_s: float
    level: str
    event: str
    text: str


class Troubles:
    """Keeps the last warnings and errors for the status page; a processor of structlog.

    All that reach the port can read the page, so texts that business code or a record may have
    written stay in the log, and so do passwords in addresses.
    """

    def __init__(self, wall_s: Callable[[], float] = time.time) -> None:
        self._wall_s = wall_s
        self._kept: deque[Trouble] = deque(maxlen=TROUBLES_MAX)

    def __call__(self, _logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        """Keep a line when it is a warning or worse; pass every line on as it is."""
        if method in _LEVELS:
            name = str(event.get("event", ""))
            hidden = _KEPT | _FOREIGN.get(name, frozenset())
            facts = [f"{key}={value}" for key, value in event.items() if key not in hidden]
            text = printable(without_user(" ".join(facts)))
            self._kept.append(Trouble(self._wall_s(), method, name, text))
        return event

    def latest(self) -> list[Trouble]:
        return list(reversed(self._kept.copy()))


class ClientLogger:
    """The ``logger=`` of a confluent-kafka client: its lines become ``librdkafka_logged``.

    The C code calls ``log(level, "%s [%s] %s", facility, handle's name, text)``, with levels as in
    Python's logging, from within ``poll``; what this raised would come out there.
    """

    def __init__(self, events: ClientEvents, client: str) -> None:
        self._events = events
        self._client = client

    def log(self, level: int, text_format: str, *parts: Any) -> None:
        """Pass one line on; never raise."""
        try:
            match parts:
                case (facility, _, text):
                    self._events.librdkafka_logged(self._client, level, str(facility), str(text))
                case _:
                    self._events.librdkafka_logged(self._client, level, "?", text_format % parts)
        except Exception as error:  # noqa: BLE001 - a callback of C code must not raise
            with suppress(Exception):
                self._events.telemetry_failed(error)


class LibraryHandler(logging.Handler):
    """Lines of Python's own logging become ``library_logged``."""

    def __init__(self, events: ClientEvents) -> None:
        super().__init__()
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one line on; never raise into business code."""
        try:
            error = record.exc_info[1] if record.exc_info else None
            self._events.library_logged(record.name, record.levelno, record.getMessage(), error)
        except Exception as failure:  # noqa: BLE001 - logging must not break who logs
            with suppress(Exception):
                self._events.telemetry_failed(failure)


def capture_library_logs(events: ClientEvents) -> None:
    """Send what business code and libraries log to ``events``, in place of stderr."""
    logging.getLogger().handlers = [LibraryHandler(events)]
    tell_drops(events.log_line_dropped, events.log_lines_dropped)


def _import_structlog() -> None:
    """Import structlog without rich.

    structlog.dev imports rich, where it is installed, for tracebacks that stay off here because
    they print the values of variables. That costs a restarted worker 40 ms before its first
    record, and a traceback should not depend on what else is installed.
    """
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment] # Python's way to say: not importable
    try:
        import structlog  # noqa: F401 - imported for the cache of modules
    finally:
        del sys.modules["rich"]
