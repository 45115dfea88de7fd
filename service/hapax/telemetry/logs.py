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
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TextIO, cast

import msgspec

from hapax.telemetry.events.service import printable, without_user
from hapax.telemetry.line_queue import LineQueue, tell_drops

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

    from hapax.settings import Settings
    from hapax.settings.secrets import Strike
    from hapax.telemetry.events.service import ClientEvents

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console", "ecs", "gcp"]

_KEPT: Final = frozenset({"app", "instance", "engine", "event", "level", "timestamp", "exc_info"})
_WHO: Final = _KEPT - {"event"}
TROUBLES_MAX: Final = 20
_LIBRARIES: Final = frozenset({"librdkafka_logged", "library_logged", "spark_logged"})
_ABOUT: Final = {"record": "{}", "partition": "{}", "call": "{}", "records": "records: {}"}
_WHY: Final = ("reason", "problem", "problems", "remarks", "how", "error", "cause", "hint")
_BOUND: Final = ("app", "instance", "engine")
_ECS: Final = {
    "app": "service.name", "instance": "service.node.name", "trace_id": "trace.id",
    "span_id": "span.id", "library": "log.logger", "logger": "log.logger",
    "error_type": "error.type", "error_message": "error.message", "exception": "error.stack_trace",
}  # fmt: skip
_OBJECTS: Final = frozenset({"latency_ms", "phases_ms"})
_GCP: Final = "logging.googleapis.com/"
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
    version: str = "",
    **bound: str,
) -> FilteringBoundLogger:
    """Return the process's logger; every line carries ``bound`` (app, instance, engine).

    Warnings and worse are kept by ``troubles``, too. ``strike`` takes secrets out of every text
    but the bound ones, tracebacks included. Without a ``stream`` lines go to standard output,
    by a queue: nothing waits for who reads it; or, as JSON, ``to`` a function.

    Levels below ``level`` cost a call that returns at once. ``auto``: console when ``stream``
    (default: stdout) is a terminal, otherwise one JSON object per line, UTF-8. ``ecs`` and ``gcp``
    are such lines by Elastic's and Google Cloud's conventions; ``version``: of the service, there.
    """
    _import_structlog()
    import structlog

    target: object = to and SimpleNamespace(**dict.fromkeys((*_LEVELS, "info", "debug"), to))
    target = target or (None if stream else LineQueue(sys.stdout.fileno()))
    stream = stream or sys.stdout
    console = log_format == "console" or (log_format == "auto" and stream.isatty())
    hide = [] if strike is None else [cast("Processor", _Without(strike))]
    processors: list[Processor] = [
        *hide,
        *([] if troubles is None else [troubles]),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%S.%fZ", utc=True),
    ]
    if console:
        colors = stream.isatty() and not os.environ.get("NO_COLOR")
        plain = structlog.dev.plain_traceback
        processors.append(structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain))
        if strike is not None:
            processors.append(lambda _logger, _method, text: strike(cast("str", text)))
        target = target or structlog.PrintLogger(stream)
    else:
        forms = {"ecs": partial(ecs_line, version), "gcp": partial(gcp_line, version)}
        form = forms.get(log_format, json_line)
        processors += [_name_error, structlog.processors.format_exc_info, *hide, form]
        target = target or structlog.BytesLogger(stream.buffer)
    kind = structlog.make_filtering_bound_logger(level)
    own = structlog.wrap_logger(
        target, processors=processors, wrapper_class=kind, context_class=dict
    )
    LOGGERS[:] = [cast("FilteringBoundLogger", own.bind(**bound))]
    return LOGGERS[0]


def who(settings: Settings) -> dict[str, Any]:
    """Return what every line of a process carries."""
    return {"app": settings.app, "instance": settings.instance, "engine": settings.engine}


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
    """Render one line: time, level, event and message first, the rest in the order it was given."""
    line = {key: event.pop(key) for key in ("timestamp", "level", "event")}
    return _encoded({**line, "message": worded(line["event"], event), **event})


def ecs_line(version: str, _logger: WrappedLogger, _method: str, event: EventDict) -> bytes:
    """Render one line by the Elastic Common Schema; what it does not have is in ``hapax``."""
    name = event.pop("event")
    line = {"@timestamp": event.pop("timestamp"), "log.level": event.pop("level")}
    line |= {"message": worded(name, event), "ecs.version": "8.11.0", "event.action": name}
    line |= {"service.version": version, "event.dataset": f"{event.get('app', 'hapax')}.log"}
    line |= {theirs: event.pop(ours) for ours, theirs in _ECS.items() if ours in event}
    for key, value in event.items():  # an index keeps a field for each key, and these are data
        if isinstance(value, dict) and key not in _OBJECTS:
            event[key] = _encoded(value).decode()
    return _encoded(line | {"hapax": event})


def gcp_line(version: str, _logger: WrappedLogger, _method: str, event: EventDict) -> bytes:
    """Render one line with the special fields of Google Cloud's logging, all others as they are."""
    line: EventDict = {"severity": event.pop("level").upper(), "time": event.pop("timestamp")}
    line["message"] = worded(event["event"], event)
    line["serviceContext"] = {"service": event.get("app", ""), "version": version}
    line[_GCP + "labels"] = {key: event.pop(key) for key in _BOUND if key in event}
    if trace := event.pop("trace_id", None):
        project = os.environ.get("GOOGLE_CLOUD_PROJECT")
        line[_GCP + "trace"] = f"projects/{project}/traces/{trace}" if project else trace
        line[_GCP + "spanId"] = event.pop("span_id", None)
    if "exception" in event:
        line["stack_trace"] = event.pop("exception")
    return _encoded({**event, **line})


def worded(name: str, facts: EventDict) -> str:
    """Return what happened as a sentence; a library's line, or what is a message, as it is."""
    if said := facts.pop("message", None) or (name in _LIBRARIES and facts.get("text")):
        return str(said)
    words = name if " " in name else name[:1].upper() + name[1:].replace("_", " ")
    words += next((f" ({form.format(facts[k])})" for k, form in _ABOUT.items() if facts.get(k)), "")
    why = next((facts[key] for key in _WHY if facts.get(key)), "")
    why = "; ".join(map(str, why)) if isinstance(why, list) else why
    return f"{words}: {why}" if why else words


def _name_error(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    given = event.get("exc_info")
    if error := given if isinstance(given, BaseException) else given and sys.exc_info()[1]:
        event.update(error_type=type(error).__name__, error_message=str(error))
    return event


def _encoded(line: dict[str, Any]) -> bytes:
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
        try:
            whole = parts[2:] and not parts[3:]
            facility, _, text = parts if whole else ("?", "", text_format % parts)
            self._events.librdkafka_logged(self._client, level, str(facility), str(text))
        except Exception as error:  # noqa: BLE001 - a callback of C code must not raise
            with suppress(Exception):
                self._events.telemetry_failed(error)


class LibraryHandler(logging.Handler):
    """Lines of Python's own logging become ``library_logged``."""

    def __init__(self, events: ClientEvents) -> None:
        super().__init__()
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
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
