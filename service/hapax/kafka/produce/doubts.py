"""What makes a transaction doubtful: requests of it that may still arrive.

A delayed EndTxn or TxnOffsetCommit of transaction n is accepted by today's brokers inside n+1
(KAFKA-17754), so a request that was sent and has no answer means: a new producer before the next
transaction. Error callbacks and ordinary log lines miss most of these, statistics come late. Two
sources are exact enough, and docs/decisions/own-detector.md compares them:

requests  where the native part is loaded: each request as it is sent and answered
lines     otherwise: the client's own lines (``debug=broker``) about lost connections and requests

Both see every request that may arrive late. The lines also report connections that break with no
such request on them, each of which costs a producer for nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    LogLine = Callable[[str, int, str, str], None]

_BROKEN = ("-> DOWN", "Disconnected", "REQTMOUT", "Timed out", "timed out")
_OTHER_CLUSTER = "different ClusterId"


def without_lines(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a producer whose requests are counted: nothing reads its lines."""
    return {name: value for name, value in properties.items() if name != "debug"}


class Requests(Protocol):
    """One client's transactional requests, counted where they are sent and answered."""

    def lost(self) -> list[str]:
        """Return those that were sent and will never be answered, each once."""
        ...

    def unanswered(self) -> list[str]:
        """Return those that were sent and have no answer yet."""
        ...

    def disconnects(self) -> int:
        """Return how many connections, or attempts at one, have ended since the client's start."""
        ...


class ClientLog:
    """Collects a producer's doubts, and passes its lines on.

    A line about another cluster is a doubt, too, from either source: a new producer compares.
    """

    def __init__(self, client: str, forward: LogLine) -> None:
        self._client = client
        self._forward = forward
        self._requests: Requests | None = None
        self._doubts: list[str] = []
        self._breaks = self._breaks_before = 0
        self._breaks_when_well: int | None = None

    def watch(self, requests: Requests) -> None:
        """Count requests instead of reading lines from here on."""
        self._requests = requests

    def log(self, level: int, _form: str, *parts: object) -> None:
        """Take one line; the C client calls this from inside poll and must never see it raise."""
        facility = str(parts[0]) if parts else ""
        text = str(parts[-1]) if parts else ""
        broken = facility == "REQTMOUT" or any(sign in text for sign in _BROKEN)
        self._breaks += broken
        if (broken and self._requests is None) or _OTHER_CLUSTER in text:
            self._doubts.append(f"{facility}: {text}")
        with suppress(Exception):
            self._forward(self._client, level, facility, text)

    @property
    def doubts(self) -> list[str]:
        """What makes the transaction doubtful so far. Callers add what they know themselves."""
        if self._requests is not None:
            self._doubts += self._requests.lost()
        return self._doubts

    @property
    def disconnected(self) -> bool:
        """Whether a connection was lost since begin, whatever was sent on it."""
        return self._disconnects() > self._breaks_before or bool(self.doubts)

    @property
    def lost_since_well(self) -> bool:
        """Whether a connection was lost since a transaction ended last, or the first one began."""
        return self._disconnects() > (self._breaks_when_well or 0)

    def begin(self) -> None:
        """Forget what is older than the transaction that begins: it doubts nothing of it."""
        self.doubts.clear()
        self._breaks_before = self._disconnects()
        if self._breaks_when_well is None:
            self._breaks_when_well = self._breaks_before

    def end(self) -> list[str]:
        """Return the doubts of a transaction that has ended.

        A request that is still without an answer by then is one: nothing waits for it any more.
        """
        self._breaks_when_well = self._disconnects()
        waiting = [] if self._requests is None else self._requests.unanswered()
        return self.doubts + waiting

    def _disconnects(self) -> int:
        return self._breaks if self._requests is None else self._requests.disconnects()
