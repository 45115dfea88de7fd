"""What a transform has apart from its record: ``from hapax import context``, atop a module.

Calls are bound where this is imported before them; the service imports it nowhere, so that no other
pipeline pays for it. Engines find it in ``sys.modules``.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import wraps
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, cast

import prometheus_client as prometheus
from msgspec.structs import replace
from structlog import get_context

from hapax.core.records import Output, Record
from hapax.processing.transform import TransformForm, identity
from hapax.telemetry import logs
from hapax.telemetry.events.service import printable
from hapax.telemetry.metrics import DURATIONS, OTHER

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger

    Given = Record | list[Record]
    Definition = tuple[type["Counter | Histogram"], str, tuple[str, ...], tuple[float, ...]]
    Counted = list[tuple[bool, str, Sequence[str], Sequence[float], Sequence[str], list[float]]]

__all__ = ["Counter", "Histogram", "counter", "histogram", "instance", "log"]
METRICS_MAX, SERIES_MAX, CHARS_MAX = 100, 100, 100
OURS = ("hapax_", "process_", "python_")
REGISTRY = prometheus.CollectorRegistry()
_GIVEN: ContextVar[Given | None] = ContextVar("given", default=None)
_FOUND: dict[str, tuple[Definition, Counter | Histogram]] = {}
_LOCK = Lock()
_KNOWN: list[Any] = []
"""The process's logger, and what is made of it for business code."""


class _Log:
    def __getattr__(self, name: str) -> Any:
        return getattr(_logger(), name)


log: FilteringBoundLogger = cast("FilteringBoundLogger", _Log())
instance: str
if not TYPE_CHECKING:

    def __getattr__(name: str) -> str:
        if name != "instance":
            raise AttributeError(name)
        return get_context(_logger())[name]


def _logger() -> Any:
    if not logs.LOGGERS:  # in no service
        name = os.environ.get("HAPAX_INSTANCE") or platform.node()
        logs.configure_logs(
            "info", to=lambda line: sys.stderr.write(f"{line.decode()}\n"), instance=name
        )
    own = logs.LOGGERS[0]
    if not _KNOWN or _KNOWN[0] is not own:
        _KNOWN[:] = [own, logs.of_business(_at_hand)]
    return _KNOWN[1]


def _at_hand(_logger: object, _method: str, event: EventDict) -> EventDict:
    given = _GIVEN.get()
    records = given if isinstance(given, list) else [given] if given else []
    if len(records) > 1:
        return {"records": len(records), "first": str(records[0].coordinates), **event}
    of = ({"topic": at.topic, "partition": at.partition, "offset": at.offset} for at in records)
    return {**next(of, {}), **event}


class _Bounded(prometheus.metrics.MetricWrapperBase):
    def labels(self, *labelvalues: Any, **labelkwargs: Any) -> Self:
        names = self._labelnames if labelkwargs.keys() == {*self._labelnames} else ()
        given = labelvalues or tuple(labelkwargs[name] for name in names)
        values = tuple(printable(str(each), CHARS_MAX) for each in given)
        if len(self._metrics) >= SERIES_MAX and values not in self._metrics:
            values = (OTHER,) * len(values)
        return super().labels(*values)


class Counter(_Bounded, prometheus.Counter):
    """Counts calls, not effects: ``labels(…)``, ``inc(amount)``, as in prometheus_client."""


class Histogram(_Bounded, prometheus.Histogram):
    """Counts values of calls: ``labels(…)``, ``observe(value)``, ``time()``, as there."""


def counter(name: str, meaning: str = "", labels: Iterable[str] = ()) -> Counter:
    """Return the counter of this name; ``/metrics`` adds ``_total``.

    It counts calls, not effects: a call that is repeated counts again, what dies unreported not at
    all. After 100 series it counts ``other``. ValueError: the name is not free, or the 101st.
    """
    made: Counter = _metric((Counter, name.removesuffix("_total"), tuple(labels), ()), meaning)
    return made


def histogram(
    name: str,
    meaning: str = "",
    labels: Iterable[str] = (),
    *,
    buckets: Iterable[float] = DURATIONS,
) -> Histogram:
    """Return the histogram of this name; the rest as of ``counter``."""
    made: Histogram = _metric((Histogram, name, tuple(labels), tuple(buckets)), meaning)
    return made


def _metric(wanted: Definition, meaning: str = "") -> Any:
    kind, name, labels, buckets = wanted
    if name.startswith(OURS):
        raise ValueError(f"{name}: only the service's metrics begin with {', '.join(OURS)}")
    if not all(each.isascii() and each.isidentifier() for each in (name, *labels)):
        raise ValueError(f"Prometheus takes letters, digits and _ in names: {name} {[*labels]}")
    with _LOCK:
        known = _FOUND.get(name)
        if known is None:
            if len(_FOUND) >= METRICS_MAX:
                raise ValueError(f"{name} is one metric more than {METRICS_MAX}: use labels")
            more: Any = {"buckets": buckets} if buckets else {}
            text = meaning or f"{name} of the transform"  # promtool complains where there is none
            known = _FOUND[name] = wanted, kind(name, text, labels, registry=REGISTRY, **more)
    if known[0] != wanted:
        kind, _, labels, buckets = known[0]
        raise ValueError(f"{name} is a {kind.__name__} already, with {labels=} and {buckets=}")
    return known[1]


def bound(form: TransformForm) -> TransformForm:
    """Return the form with its calls bound to what they are given."""
    function = form.function
    if form.context or identity in {function, getattr(function, "__wrapped__", None)}:
        return form

    def called(given: Given) -> Any:
        _GIVEN.set(given)
        try:
            answer = function(given)
        finally:
            _GIVEN.set(None)
        return answer if type(answer) is Output else _lazy(given, answer)

    async def awaited(given: Given) -> Any:
        _GIVEN.set(given)  # in its own task
        return _lazy(given, await function(given))

    return replace(form, function=wraps(function)(awaited if form.asynchronous else called))


def _lazy(given: Given, answer: Any) -> Any:
    if isinstance(given, list):
        same = isinstance(answer, list) and len(answer) == len(given)
        return list(map(_lazy, given, answer)) if same else answer
    return _steps(given, answer) if isinstance(answer, Iterator) else answer


def _steps(record: Record, answer: Iterator[Any]) -> Iterator[Any]:
    _GIVEN.set(record)
    try:
        for one in answer:
            _GIVEN.set(None)
            yield one
            _GIVEN.set(record)
    finally:
        _GIVEN.set(None)


def _parts(child: Any) -> list[Any]:
    """Return what holds the amounts of a series; the library has no other way to add to buckets."""
    held = vars(child)
    return [held["_value"]] if "_value" in held else [*held["_buckets"], held["_sum"]]


def drained() -> Counted:
    """Take what was counted: for another process, or for a test."""
    found: Counted = []
    for (kind, name, labels, buckets), metric in list(_FOUND.values()):
        for at, child in (dict(vars(metric)["_metrics"]) if labels else {(): metric}).items():
            amounts = [part.get() for part in _parts(child)]
            if any(amounts):
                found.append((kind is Counter, name, labels, buckets, at, amounts))
            for part, amount in zip(_parts(child), amounts, strict=True):
                part.inc(-amount)
    return found


def add(counted: Counted) -> None:
    for counts, name, labels, buckets, at, amounts in counted:
        with suppress(ValueError):  # no count is worth a stop
            kind = Counter if counts else Histogram
            metric = _metric((kind, name, tuple(labels), tuple(buckets)))
            parts = _parts(metric.labels(*at) if at else metric)
            for part, more in zip(parts, amounts, strict=True):
                part.inc(more)


def capture(level: logs.Level, take: Callable[[bytes], object], **names: Any) -> None:
    """Give lines to a pipeline in memory, and count from here on."""
    logs.configure_logs(level, "json", to=take, **names)
    drained()


def counted() -> dict[str, float]:
    """Take what was counted, by series as Prometheus writes them; of histograms count and sum."""
    found = {}
    for counts, name, labels, _, at, (*buckets, last) in drained():
        of = ",".join(f'{label}="{value}"' for label, value in zip(labels, at, strict=True))
        parts = {"total": last} if counts else {"count": sum(buckets), "sum": last}
        for what, amount in parts.items():
            found[f"{name}_{what}" + (of and f"{{{of}}}")] = amount
    return found
