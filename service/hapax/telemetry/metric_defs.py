"""Families of metrics: a row of the table, and what it becomes in one registry.

No label grows without end. A label either lists its values or has a limit; what comes on top is
counted under ``other``, so that a stranger's exception names cannot fill Prometheus.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OTHER = "other"
PREFIX = "hapax_"

M = TypeVar("M", bound=Counter | Gauge | Histogram)

DURATIONS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
LATENCIES = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0, 86400.0,
)  # fmt: skip
RANGES = (
    10.0, 100.0, 1_000.0, 10_000.0, 30_000.0, 100_000.0, 300_000.0, 1_000_000.0, 3_000_000.0,
)  # fmt: skip
SIZES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, 30_000.0, 100_000.0)


class Label(NamedTuple):
    """A label with all its ``values``, or with a ``limit`` on how many different ones it takes."""

    name: str
    values: tuple[str, ...] = ()
    limit: int = 0


class Row(Generic[M]):
    """One metric as it is in the table.

    A class attribute that is a row becomes a Family on the instance, under the same name; the
    exposed name is the attribute's with prefix, and with ``_total`` for counters.
    """

    def __init__(
        self, kind: type[M], meaning: str, *labels: Label, buckets: tuple[float, ...] = ()
    ) -> None:
        self.kind = kind
        self.meaning = meaning
        self.labels = labels
        self.buckets = buckets
        self.attribute = ""

    def __set_name__(self, owner: type[object], name: str) -> None:
        self.attribute = name

    def __get__(self, instance: object, owner: type[object]) -> Family[M]:
        raise AttributeError(f"{self.attribute} is a row; an instance has the family")

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.attribute}{'_total' if self.kind is Counter else ''}"

    def build(self, registry: CollectorRegistry) -> Family[M]:
        names = [label.name for label in self.labels]
        if issubclass(self.kind, Histogram):
            metric: object = Histogram(
                self.name, self.meaning, names, registry=registry, buckets=self.buckets
            )
        else:
            metric = self.kind(self.name, self.meaning, names, registry=registry)
        return Family(self, cast("M", metric))


class Family(Generic[M]):
    """A metric with its label children, each bound once: a hit costs one dict look-up."""

    def __init__(self, row: Row[M], metric: M) -> None:
        self._row = row
        self._metric = metric
        self._children: dict[tuple[str, ...], M] = {}
        self._seen = [set(label.values) for label in row.labels]
        # Series that exist from the start let a rate see their first movement.
        if all(label.values for label in row.labels):
            for values in product(*(label.values for label in row.labels)):
                self.of(*values)

    def of(self, *values: str) -> M:
        child = self._children.get(values)
        return self._bind(values) if child is None else child

    def series(self) -> Iterator[tuple[Mapping[str, str], float]]:
        for metric in self._metric.collect():
            for sample in metric.samples:
                if sample.name == self._row.name:
                    yield sample.labels, sample.value

    def remove(self, *values: str) -> None:
        if self._children.pop(values, None) is not None:
            self._metric.remove(*values)

    def _bind(self, values: tuple[str, ...]) -> M:
        bounded = tuple(
            self._bounded(label, seen, value)
            for label, seen, value in zip(self._row.labels, self._seen, values, strict=True)
        )
        child = cast("M", self._metric.labels(*bounded)) if bounded else self._metric
        if bounded == values:
            self._children[values] = child
        return child

    @staticmethod
    def _bounded(label: Label, seen: set[str], value: str) -> str:
        if value in seen:
            return value
        if len(seen) >= label.limit:
            return OTHER
        seen.add(value)
        return value
