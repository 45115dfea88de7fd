"""Offsets of logs for the doctor: two looks at their ends, and where an age begins.

Partitions whose leader is away are left out by the caller.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from hapax.core.cluster_state import Log
from hapax.core.committed_metadata import CommittedMetadata, text_of
from hapax.core.group_start import client_of
from hapax.kafka.errors import describe
from hapax.kafka.read.offset_queries import LATEST, OffsetQueries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.cluster_state import TopicPartition as Where
    from hapax.core.partition_offsets import LogOffsets

CALL_TIMEOUT_S, BUDGET_S = 2.0, 3.5


class Logs:
    """Queries offsets of one look at a cluster.

    untold  by name what was not answered, and why
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        leaders: Mapping[Where, int],
        inputs: list[Where],
        ages_ms: Mapping[str, tuple[int, ...]],
        pause_s: float,
    ) -> None:
        """``leaders``: of the partitions whose offsets are queried, each of which can be reached.

        ``inputs``: partitions whose committed offset is queried. ``ages_ms``: by topic, ages whose
        first offsets are queried. ``pause_s``: between the two looks at the last stable offsets.
        """
        self._deadline_s = time.monotonic() + BUDGET_S
        self._queries = OffsetQueries(properties, leaders=leaders, left_s=self._left_s)
        self._places = list(leaders)
        self._inputs = inputs
        self._ages_ms = ages_ms
        self._pause_s = pause_s
        self.untold: dict[str, str] = {}
        self._clusters: dict[Where, str | None] = {}
        self._foreign: dict[Where, str] = {}

    def close(self) -> None:
        """Close the connections."""
        self._queries.close()

    def look(self) -> dict[Where, Log]:
        """Return what is known of each partition."""
        places = self._places
        # The committed offset first, the ends after it: so an offset is never beyond its log.
        committed = self._committed()
        # The high watermark first, the stable end after it, and the stable end again at the very
        # end: a transaction that is seen open was open all the time.
        logs = self._queries.log_offsets(places)
        seen_s = time.monotonic()
        since = self._since(logs)
        later: dict[Where, int | None] = {}
        if any(log.last_stable_offset_lag for log in logs.values()):
            time.sleep(max(0.0, self._pause_s - (time.monotonic() - seen_s)))
            later = self._queries.offsets(dict.fromkeys(places, LATEST), committed=True)
        for one in self._queries.take_errors():
            name = f"broker {one.leader}" if one.where is None else f"{one.where[0]}/{one.where[1]}"
            self.untold[f"offsets of {name}"] = describe(one.error)
        return {
            where: Log(
                offsets=logs.get(where),
                last_stable_later=later.get(where),
                committed=committed.get(where),
                since=since.get(where, {}),
                cluster_id=self._clusters.get(where),
                foreign=self._foreign.get(where),
            )
            for where in places
        }

    def _since(self, logs: Mapping[Where, LogOffsets]) -> dict[Where, dict[int, int]]:
        found: dict[Where, dict[int, int]] = {}
        now_ms, ages_ms = int(time.time() * 1000), self._ages_ms
        for rank in range(max((len(ages) for ages in ages_ms.values()), default=0)):
            ages = {name: ages[rank] for name, ages in ages_ms.items() if rank < len(ages)}
            wanted = {where: now_ms - ages[where[0]] for where in logs if where[0] in ages}
            for where, offset in self._queries.offsets(wanted).items():
                # No record is that young: then the age begins after all of them.
                at = logs[where].high_watermark if offset is None else offset
                found.setdefault(where, {})[ages[where[0]]] = at
        return found

    def _committed(self) -> dict[Where, int]:
        if not self._inputs:
            return {}
        try:
            answers = self._queries.group_offsets(self._inputs, self._left_s(), stable=False)
        except KafkaException as error:
            self.untold["committed offsets"] = describe(error.args[0])
            return {}
        found = {}
        for where, one in answers.items():
            if one.error is not None:
                self.untold["committed offsets"] = describe(one.error)
            elif one.offset >= 0:
                found[where] = one.offset
                beside = CommittedMetadata.of(one)
                self._clusters[where] = beside.cluster_id
                if beside == CommittedMetadata():
                    self._foreign[where] = client_of(text_of(one))
        return found

    def _left_s(self) -> float:
        return max(0.1, min(CALL_TIMEOUT_S, self._deadline_s - time.monotonic()))
