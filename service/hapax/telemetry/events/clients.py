"""Events of the Kafka client and of other libraries: lines that were written by strangers."""

from __future__ import annotations

import re
from typing import Any, Final

from hapax.telemetry.events.base import CRITICAL, DEBUG, ERROR, INFO, WARNING, Narrator, printable

_VARYING: Final = re.compile(
    r"\((?:[^()]|\([^()]*\))*\)|\b\d+(?:\.\d+)?(?= ?(?:ms|s|requests?|identical)\b)"
)
"""Where two lines that say the same differ: "(after 2ms, 9 identical error(s) suppressed)"."""

SPARK_CHARS_MAX: Final = 2_100
"""A traceback of a task stands nowhere else."""


class ClientEvents(Narrator):
    """What libraries say, in our form and no more often than useful."""

    def librdkafka_logged(self, client: str, level: int, facility: str, text: str) -> None:
        """Pass on a line of librdkafka's log. ``level`` counts as in Python's logging.

        Errors that a consumer hands out instead of records come here, too, as facility ``ERROR``.
        Repeats are counted only, for a minute. Lost connections heal by themselves, so nothing
        below CRITICAL is an error to us.
        """
        if level >= WARNING:
            self._metrics.librdkafka_errors.of(facility).inc()
        elif not (self._tells_info if level >= INFO else self._tells_debug):
            return
        text = printable(text)
        alike = _VARYING.sub("…", text)
        if level < INFO or self._first("librdkafka_logged", client, facility, alike):
            self._tell(level, "librdkafka_logged", client=client, facility=facility, text=text)

    def library_logged(
        self, library: str, level: int, text: str, error: BaseException | None = None
    ) -> None:
        """Pass on a line of Python's own logging: business code, redis, and others."""
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
        """Say that a client's line could not be told: its callback must not raise."""
        self._metrics.telemetry_failures.of().inc()
        if self._first("telemetry_failed", type(error).__name__):
            self._logger.error("telemetry_failed", error=type(error).__name__)

    def log_line_dropped(self) -> None:
        """Count a line that could not be written; ``log_lines_dropped`` says so when one can be."""
        self._metrics.log_lines_dropped.of().inc()
        self._lines_dropped += 1

    def log_lines_dropped(self) -> None:
        """Say how many lines are missing before this one."""
        count, self._lines_dropped = self._lines_dropped, 0
        self._logger.warning("log_lines_dropped", count=count)

    def _tell(self, level: int, event: str, **facts: Any) -> None:
        if level >= CRITICAL:
            self._logger.error(event, **facts)
        elif level >= WARNING:
            self._logger.warning(event, **facts)
        elif level >= INFO:
            self._logger.info(event, **facts)
        elif level >= DEBUG:
            self._logger.debug(event, **facts)
