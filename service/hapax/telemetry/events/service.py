"""Events of the process: it starts, gets ready, moves, drains, stops."""

from __future__ import annotations

import math
import platform
import re
import sys
import traceback
from logging import CRITICAL, ERROR, INFO, WARNING
from pathlib import Path
from threading import main_thread
from typing import TYPE_CHECKING, Any, Final

from hapax.telemetry.events.base import Narrator, named, named_all, printable
from hapax.telemetry.line_queue import flush_lines, write_within

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hapax.core.records import Coordinates, TopicPartition
    from hapax.processing.state import StateFigures

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

    def service_draining(self, reason: str) -> None:
        self._health.draining = True
        self._tell_settled()
        self._logger.info("service_draining", reason=reason)

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
        self._hang("watchdog_fired", call=call, seconds=round(seconds, 3))

    def call_hung(self, coordinates: Coordinates, seconds: float) -> None:
        """Return within two seconds, as ``watchdog_fired`` within one; the process ends."""
        self._hang("call_hung", record=str(coordinates), seconds=round(seconds, 3))
        text = (
            f"hapax: the transform has not returned from record {coordinates} for {seconds:.1f} s"
            " (HAPAX_CALL__TIMEOUT): the process ends with exit code 8; when the record hangs"
            " again it becomes a dead letter\n"
        )
        write_within(lambda: sys.stderr.write(text))

    def _hang(self, event: str, **facts: str | float) -> None:
        self._tell_withheld(math.inf)
        self._tell_settled()
        self._logger.critical(event, **facts, stack=_main_stack())
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
