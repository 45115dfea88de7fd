"""What a local audit has found: counts for each input partition, and the first examples."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING

from hapax.operations.audit.result import NAMES, Offence, audit_of

if TYPE_CHECKING:
    from hapax.operations.audit.local_rows import Key
    from hapax.operations.audit.result import Audit, OutputFindings, Scope


class LocalCounts:
    """Grows while records are judged."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._counts: dict[int, dict[str, int]] = defaultdict(dict)
        self._examples: dict[str, list[tuple[Key, Offence]]] = {name: [] for name in NAMES}

    def add(
        self,
        name: str,
        key: Key,
        offence: Offence | None = None,
        count: int = 1,
        *,
        order: Key | None = None,
    ) -> None:
        """Count; keep ``offence`` if it is one of the first by ``order`` (default: by record)."""
        if not count:
            return
        counts = self._counts[key[0]]
        counts[name] = counts.get(name, 0) + count
        examples = self._examples.get(name)
        if offence is not None and examples is not None:
            insort(examples, (order or key, offence), key=itemgetter(0))
            del examples[self._scope.examples_max :]

    def audit(self, outputs: list[OutputFindings]) -> Audit:
        """Return all of it."""
        audit = audit_of(self._scope, self._counts, outputs)
        audit.examples = {
            name: [offence.sentence(name, self._scope) for _key, offence in self._examples[name]]
            for name in (audit.anomalies if self._scope.examples_max else ())
        }
        return audit
