"""Step 4 around records that wait: who is not due is not called, who asks for more time gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core.dead_letters import REFUSED
from hapax.core.results import Failure, Later
from hapax.core.retry_later import NOT_OURS, put, put_again

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from hapax.core.headers import Retried
    from hapax.core.interrupt import Interrupt
    from hapax.core.ports import AppliesAll
    from hapax.core.records import Record
    from hapax.core.results import Result
    from hapax.core.retry_later import Retrying


class LaterCalls:
    """Makes the calls that are due, by ``calls``, and says where the other records wait.

    ``now_ms``: Unix time in milliseconds, for due times outlive the process.
    """

    def __init__(self, calls: AppliesAll, retrying: Retrying, *, now_ms: Callable[[], int]) -> None:
        assert retrying.topic is not None
        self._calls = calls
        self._retrying = retrying
        self._topic = retrying.topic
        self._now_ms = now_ms

    def apply_all(
        self, records: Sequence[Record], interrupt: Interrupt, fates: dict[int, Result | None]
    ) -> list[Result | None]:
        known = {**self.not_due(records), **fates}
        called = self._calls.apply_all(records, interrupt, known)
        return self.finish(records, called, kept=fates)

    def not_due(self, records: Sequence[Record]) -> dict[int, Result | None]:
        topic, now_ms = self._topic, self._now_ms()
        known: dict[int, Result | None] = {}
        for index, record in enumerate(records):
            if record.topic != topic.name:
                continue
            found = topic.read(record)
            if found is None:
                known[index] = Failure("Poison", NOT_OURS, 1)
            elif found.due > now_ms:
                known[index] = put_again(found, now_ms)
        return known

    def finish(
        self, records: Sequence[Record], results: list[Result | None], kept: Collection[int] = ()
    ) -> list[Result | None]:
        """Return results with the place where each record waits that asked for a later try.

        ``kept``: indices of results that may be of an attempt before this one. A failure among them
        was counted together with the calls before it, unless the brokers have refused an output.
        """
        for index, result in enumerate(results):
            if not isinstance(result, Later | Failure):
                continue
            if isinstance(result, Failure) and (
                result.cut or (index in kept and result.reason != REFUSED)
            ):
                continue
            before = self._topic.read(records[index])
            if isinstance(result, Later):
                results[index] = self._later(records[index], before, result)
            elif before is not None:
                calls = before.calls + result.attempts
                results[index] = msgspec.structs.replace(result, attempts=calls)
        return results

    def _later(self, record: Record, before: Retried | None, asked: Later) -> Result:
        attempt = before.attempt + 1 if before else 1
        calls = asked.attempts + (before.calls if before else 0)
        if attempt > self._retrying.later_attempts:
            return Failure(asked.reason, asked.text, calls)
        after_ms = asked.after_ms
        if after_ms is None:
            after_ms = self._retrying.delay_after(attempt)
        return put(record, before, after_ms, calls, self._now_ms())
