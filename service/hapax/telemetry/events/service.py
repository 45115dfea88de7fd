"""Events of the process: it starts, gets ready, moves, drains, stops; and what all events share."""

from __future__ import annotations

import math
import platform
import re
import sys
import time
import traceback
from logging import CRITICAL, DEBUG, ERROR, INFO, WARNING
from pathlib import Path
from threading import Lock, main_thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from hapax.core.errors import ExitCode
from hapax.telemetry.health import Health, Outage
from hapax.telemetry.line_queue import flush_lines, write_within

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from prometheus_client import Counter
    from structlog.typing import FilteringBoundLogger

    from hapax.core.records import Coordinates, TopicPartition
    from hapax.processing.state import StateFigures
    from hapax.telemetry.metrics import Family, Metrics

SETTLED_INTERVAL_S: Final = 1.0
"""Transactions within it share a line: ten a second with a line each are 500 MB of log a day."""
START_S: Final = 30.0
"""Within it a broker that still loads its log of transactions is no reason to worry."""
Merged = dict[str, Any]

TEXT_CHARS_MAX: Final = 300
"""Length of a text from outside (error, log line of a client) in one line."""

_USER: Final = re.compile(r"//[^/\s@]*@")

Key = tuple[str, ...]
"""What counts as the same: the event's name, then whatever distinguishes two."""

OVERFLOW: Key = ("other",)


class Withheld(NamedTuple):
    """So many ``lines`` of ``key`` were counted and not logged."""

    key: Key
    lines: int


class _Window(msgspec.Struct):
    end_s: float
    told: int = 0
    withheld: int = 0


class Repeats:
    """Per key the first lines of each window are logged, the rest is counted.

    ``due_s``: monotonic time at which ``ended`` has something to say; infinite while it has not.
    At most ``keys_max`` keys are distinguished; further ones share one. Used by several threads.
    """

    def __init__(self, *, window_s: float = 60.0, keys_max: int = 256) -> None:
        self.due_s = math.inf
        self._window_s = window_s
        self._keys_max = keys_max
        self._windows: dict[Key, _Window] = {}
        self._ended: list[Withheld] = []
        self._lock = Lock()

    def admit(self, key: Key, now_s: float, lines: int = 1) -> bool:
        """Return true when this one is to be logged: it is among the first ``lines``."""
        with self._lock:
            window = self._window(key, now_s)
            if window.told < lines:
                window.told += 1
                return True
            window.withheld += 1
            self.due_s = min(self.due_s, window.end_s)
            return False

    def ended(self, now_s: float) -> list[Withheld]:
        """Return what was withheld in windows that are over at ``now_s``, and forget it."""
        with self._lock:
            self._expire(now_s)
            ended, self._ended = self._ended, []
            open_s = [window.end_s for window in self._windows.values() if window.withheld]
            self.due_s = min(open_s, default=math.inf)
            return ended

    def _window(self, key: Key, now_s: float) -> _Window:
        window = self._windows.get(key)
        if window is not None and now_s < window.end_s:
            return window
        if window is not None or len(self._windows) >= self._keys_max:
            self._expire(now_s)
        if len(self._windows) >= self._keys_max:
            key = OVERFLOW
        return self._windows.setdefault(key, _Window(end_s=now_s + self._window_s))

    def _expire(self, now_s: float) -> None:
        for key in [key for key, window in self._windows.items() if now_s >= window.end_s]:
            withheld = self._windows.pop(key).withheld
            if withheld:
                self._ended.append(Withheld(key, withheld))


class Narrator:
    """Holds metrics, health and logger, and withholds lines that repeat.

    ``wall_s`` returns Unix time; monotonic time is the health's, so that both agree.
    """

    def __init__(
        self,
        metrics: Metrics,
        health: Health,
        logger: FilteringBoundLogger,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._metrics = metrics
        self._health = health
        self._logger = logger
        self._wall_s = wall_s
        self._monotonic_s = health.monotonic_s
        self._started_s = self._monotonic_s() + START_S
        self._repeats = Repeats()
        self._lines_dropped = 0
        self._settled: Merged | None = None
        self._settled_due_s = -math.inf
        self._tells_info: bool = logger.is_enabled_for(INFO)
        self._tells_debug: bool = logger.is_enabled_for(DEBUG)

    def log_lines_suppressed(self, of: str, about: list[str], count: int) -> None:
        """So many lines like ``of`` were counted only, within a minute that is over."""
        self._logger.warning("log_lines_suppressed", of=of, about=about, count=count)

    def _tell_settled(self) -> None:
        line, self._settled = self._settled, None
        if line is not None:
            self._settled_due_s = self._monotonic_s() + SETTLED_INTERVAL_S
            self._logger.info("transaction_committed", **line)

    def _first(self, *key: str, lines: int = 1) -> bool:
        return self._repeats.admit(key, self._monotonic_s(), lines)

    def _outage(self, known: Outage | None, reason: str) -> Outage:
        """Return an outage that lasts, or one that begins now, with its latest reason."""
        told = printable(without_user(reason))
        if known is not None:
            return known._replace(reason=told)
        return Outage(self._wall_s(), self._monotonic_s(), told)

    def _lasted_s(self, outage: Outage | None) -> float:
        return 0.0 if outage is None else round(self._monotonic_s() - outage.began_s, 3)

    def _tell_withheld(self, until_s: float) -> None:
        for (of, *about), count in self._repeats.ended(until_s):
            self.log_lines_suppressed(of, about, count)


def printable(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Return foreign text bounded, on one line, and without characters that move a terminal."""
    if len(text) > chars_max:
        text = text[: chars_max - 1] + "…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def without_user(text: str) -> str:
    return _USER.sub("//***@", text)


def named(partition: TopicPartition) -> str:
    return f"{partition[0]}/{partition[1]}"


def named_all(partitions: Iterable[TopicPartition]) -> list[str]:
    return [named(partition) for partition in sorted(partitions)]


def by_name(facts: Mapping[TopicPartition, Any]) -> dict[str, Any]:
    return {named(partition): fact for partition, fact in facts.items()}


def add(family: Family[Counter], counts: Mapping[str, int]) -> None:
    for label, count in counts.items():
        family.of(label).inc(count)


STACK_MAX: Final = 8
_VARYING: Final = re.compile(
    r"\((?:[^()]|\([^()]*\))*\)|\b\d+(?:\.\d+)?(?= ?(?:ms|s|requests?|identical)\b)"
)
"""Where two lines that say the same differ: "(after 2ms, 9 identical error(s) suppressed)"."""
_LOADING: Final = "Coordinator load in progress"
SPARK_CHARS_MAX: Final = 2_100
"""A traceback of a task is nowhere else."""


def _main_stack() -> list[str]:
    """Return where the main thread is, innermost first: the only trace that a hang leaves."""
    frame = sys._current_frames().get(main_thread().ident or 0)
    return [
        f"{Path(each.filename).name}:{each.lineno} {each.name}"
        for each in reversed(traceback.extract_stack(frame))
    ][:STACK_MAX]


class ServiceEvents(Narrator):
    """What happens to the process as a whole."""

    def service_started(
        self,
        settings: Mapping[str, str],
        *,
        version: str,
        engine: str,
        librdkafka: str,
        record_path: str,
    ) -> None:
        """Say what runs, and how. ``settings`` are logged as given: redact them before.

        ``record_path``: ``native`` or ``python``, and why.
        """
        python, metrics = platform.python_version(), self._metrics
        metrics.build_info.of(metrics.app, version, engine, python, librdkafka).set(1)
        self._metrics.last_poll_timestamp_seconds.of().set_function(self._last_poll_s)
        self._metrics.ready.of().set_function(lambda: float(self._health.readyz().ok))
        self._logger.info(
            "service_started",
            version=version,
            python=python,
            librdkafka=librdkafka,
            record_path=record_path,
            settings=dict(settings),
        )

    def native_route_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._metrics.native_routes_lost.of().inc(len(partitions))
        self._logger.warning("native_route_lost", partitions=named_all(partitions))

    def native_path_left(self, reason: str) -> None:
        self._metrics.native_path_left.of().set(1)
        self._logger.error("native_path_left", reason=reason)

    def preflight_passed(self, remarks: Sequence[str] = ()) -> None:
        """Say that the outside is fit to start on; ``remarks``: what could be better."""
        tell = self._logger.warning if remarks else self._logger.info
        tell("preflight_passed", remarks=list(remarks))

    def preflight_refused(self, problems: Sequence[str]) -> None:
        self._logger.error("preflight_refused", problems=list(problems))

    def service_ready(self) -> None:
        self._health.started = True
        self._logger.info("service_ready")

    def loop_moved(self) -> None:
        """Note that the loop came round. Called each time, so it only stores the time."""
        now_s = self._monotonic_s()
        self._health.loop_s = now_s
        if now_s >= self._repeats.due_s:
            self._tell_withheld(now_s)
        if self._settled is not None and now_s >= self._settled_due_s:
            self._tell_settled()

    def producer_init_retried(self, reason: str) -> None:
        self._metrics.brokers_awaited.of().inc()
        self._health.fail()
        if self._first("producer_init_retried"):
            self._logger.error("producer_init_retried", reason=printable(reason))

    def brokers_unreachable(self, places: str) -> None:
        """Say that no broker answers at all; ``places``: addresses, and what is wrong there."""
        self._metrics.brokers_awaited.of().inc()
        away = self._health.brokers_away
        self._health.brokers_away = outage = self._outage(away, places)
        if self._first("brokers_unreachable") or away is None:
            since = f"no broker has answered since {outage.since}"
            self._logger.error("brokers_unreachable", reason=f"{since} ({outage.reason})")

    @property
    def brokers_are_away(self) -> bool:
        return self._health.brokers_away is not None

    def brokers_reached(self) -> None:
        away, self._health.brokers_away = self._health.brokers_away, None
        self._logger.info("brokers_reached", outage_s=self._lasted_s(away))

    def consumer_answered(self, *, answered: bool) -> None:
        """Say when brokers answer this process's consumer no more, and when they do again."""
        since = self._health.cut_off
        if answered == (since is None):
            return
        if answered:
            self._health.cut_off = None
            self._logger.info("consumer_answered")
            return
        reason = "no broker answers the consumer of this process"
        self._health.cut_off = self._outage(None, reason)
        self._metrics.brokers_awaited.of().inc()
        self._logger.error("consumer_unanswered", reason=f"{reason}: it is built again soon")

    def intake_paused(self) -> None:
        self._health.paused_s = self._wall_s()
        self._metrics.paused.of().set(1)
        self._logger.warning("intake_paused", hint="until hapax resume, or a restart")

    def intake_resumed(self) -> None:
        since_s, self._health.paused_s = self._health.paused_s, None
        self._metrics.paused.of().set(0)
        paused_s = 0.0 if since_s is None else self._wall_s() - since_s
        self._logger.info("intake_resumed", paused_s=round(paused_s, 3))

    def client_files_changed(self, files: Sequence[str], *, restart: bool) -> None:
        tell = self._logger.warning if restart else self._logger.info
        tell("client_files_changed", files=files, restart_needed=restart)

    def client_files_refused(self, files: Sequence[str], problem: str) -> None:
        self._logger.error("client_files_refused", files=files, problem=printable(problem))

    def batch_abandoned(self, reason: str) -> None:
        self._logger.warning("batch_abandoned", reason=printable(reason))

    def service_draining(self, reason: str, in_flight: int = 0) -> None:
        """Say why the process begins nothing more; ``in_flight``: records that it waits for."""
        self._health.draining = True
        self._tell_settled()
        self._logger.info("service_draining", reason=reason, in_flight=in_flight)

    def service_stopped(self, exit_code: int, reason: str) -> None:
        """Say why the process leaves, and with which exit code. The last line."""
        self._tell_settled()
        self._tell_withheld(math.inf)
        tell = self._logger.error if exit_code else self._logger.info
        tell("service_stopped", exit_code=exit_code, reason=reason)

    def service_crashed(self, error: BaseException) -> None:
        """Show an unexpected error: its traceback, without values of variables."""
        self._tell_settled()
        self._logger.error("service_crashed", error=type(error).__name__, exc_info=error)

    def state_awaited(self, partitions: Collection[TopicPartition]) -> None:
        self._logger.info("state_awaited", partitions=named_all(partitions))

    def state_restored(self, partition: TopicPartition, changes: int, lasted_s: float) -> None:
        seconds = round(lasted_s, 3)
        where = named(partition)
        self._metrics.state_changes_restored.of().inc(changes)
        self._logger.info("state_restored", partition=where, changes=changes, seconds=seconds)

    def state_unread(self, partition: TopicPartition, reason: str) -> None:
        if self._first("state_unread", named(partition)):
            told = printable(reason)
            self._logger.error("state_unread", partition=named(partition), reason=told)

    def state_measured(self, figures: StateFigures) -> None:
        """Take note of what is kept, and of what is still to be read. Often, so without a line."""
        self._health.kept, metrics = figures, self._metrics
        metrics.state_rows.of().set(figures.entries)
        metrics.state_bytes.of().set(figures.size_bytes)
        metrics.state_max_bytes.of().set(figures.size_max_bytes)
        metrics.state_partitions_restoring.of().set(len(figures.restoring))
        left = sum(whole - read for read, whole in figures.restoring.values() if whole is not None)
        metrics.state_unread_offsets.of().set(left)

    def schemas_unavailable(self, reason: str, partition: TopicPartition | None = None) -> None:
        """Say what is waited for, and which partition waits; None: the start does."""
        away = self._health.schemas_away
        self._health.schemas_away = self._outage(away, reason)
        self._metrics.schemas_missing.of().set(1)
        where = "" if partition is None else named(partition)
        if self._first("schemas_unavailable", where) or away is None:
            self._logger.error("schemas_unavailable", reason=printable(reason), partition=where)

    def schemas_recovered(self) -> None:
        away, self._health.schemas_away = self._health.schemas_away, None
        self._metrics.schemas_missing.of().set(0)
        self._logger.info("schemas_recovered", outage_s=self._lasted_s(away))

    def schema_file_unusable(self, reason: str) -> None:
        if self._first("schema_file_unusable", reason):
            self._logger.warning("schema_file_unusable", reason=printable(reason))

    def watchdog_fired(self, call: str, seconds: float) -> None:
        """Return within a second, even when what is written is not read; the process ends."""
        self._metrics.watchdog_fired.of(call).inc()
        self._hang("watchdog_fired", ExitCode.WATCHDOG, call=call, seconds=round(seconds, 3))

    def call_hung(self, coordinates: Coordinates, seconds: float) -> None:
        """Return within two seconds, as ``watchdog_fired`` within one; the process ends."""
        self._hang(
            "call_hung", ExitCode.CALL_HUNG, record=str(coordinates), seconds=round(seconds, 3)
        )
        text = (
            f"hapax: the transform has not returned from record {coordinates} for {seconds:.1f} s"
            " (HAPAX_CALL__TIMEOUT): the process ends with exit code 8; when the record hangs"
            " again it becomes a dead letter\n"
        )
        write_within(lambda: sys.stderr.write(text))

    def _hang(self, event: str, code: ExitCode, **facts: str | float) -> None:
        self._tell_withheld(math.inf)
        self._tell_settled()
        self._logger.critical(event, exit_code=int(code), **facts, stack=_main_stack())
        flush_lines()

    def _last_poll_s(self) -> float:
        loop_s = self._health.loop_s
        return 0.0 if loop_s is None else self._wall_s() - (self._monotonic_s() - loop_s)


class ClientEvents(Narrator):
    """What libraries say, in the form of the service and no more often than useful."""

    def librdkafka_logged(self, client: str, level: int, facility: str, text: str) -> None:
        """Pass on a line of librdkafka's log. ``level`` counts as in Python's logging.

        Errors that a consumer hands out instead of records come here, too, as facility ``ERROR``.
        Repeats are counted only, for a minute. Lost connections heal by themselves, so nothing
        below CRITICAL is an error here. A coordinator that still loads belongs to a start.
        """
        if level == WARNING and _LOADING in text and self._monotonic_s() < self._started_s:
            level = INFO
        if level >= ERROR:
            self._metrics.librdkafka_errors.of(facility).inc()
        if level < WARNING and not (self._tells_info if level >= INFO else self._tells_debug):
            return
        text = printable(text)
        alike = _VARYING.sub("…", text)
        if level < INFO or self._first("librdkafka_logged", client, facility, alike, str(level)):
            self._tell(level, "librdkafka_logged", client=client, facility=facility, text=text)

    def library_logged(
        self, library: str, level: int, text: str, error: BaseException | None = None
    ) -> None:
        facts: dict[str, Any] = {"exc_info": error} if error else {}
        self._tell(level, "library_logged", library=library, text=printable(text), **facts)

    def spark_logged(self, level: int, logger: str, text: str) -> None:
        """Pass on what Spark, its JVM or a Python process of it printed; ``logger``: which part.

        What is alike is counted only, for a minute, where it is a line of Spark's own log: those
        have the name of a class. ``level`` counts as in Python's logging.
        """
        text = printable(text, SPARK_CHARS_MAX)
        if "." not in logger or self._first("spark_logged", logger, _VARYING.sub("…", text)):
            told = CRITICAL if level >= ERROR else level
            self._tell(told, "spark_logged", logger=logger, text=text)

    def telemetry_failed(self, error: Exception) -> None:
        """Say that a client's line could not be logged: its callback must not raise."""
        self._metrics.telemetry_failures.of().inc()
        if self._first("telemetry_failed", type(error).__name__):
            self._logger.error("telemetry_failed", error=type(error).__name__)

    def log_line_dropped(self) -> None:
        """Count a line that could not be written; ``log_lines_dropped`` says so when one can be."""
        self._metrics.log_lines_dropped.of().inc()
        self._lines_dropped += 1

    def log_lines_dropped(self) -> None:
        count, self._lines_dropped = self._lines_dropped, 0
        self._logger.warning("log_lines_dropped", count=count)

    def _tell(self, level: int, event: str, **facts: Any) -> None:
        told = ERROR if level >= CRITICAL else min(level // 10 * 10, WARNING)
        self._logger.log(told, event, **facts)
