"""A bounded part of topics: how it was asked for, and what that came to in one partition.

The member that begins a topic looks both ends up once, for all of its partitions, and commits the
starts as the group's offsets with the span in the metadata of each. Every later commit carries it
on. So the ends stay the same however often processes start again, and whatever retention,
compaction or late timestamps would make of the same words later.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import msgspec

from hapax.core.durations import moment_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.records import TopicPartition

WORDS = ("earliest", "latest", "refuse")
"""What ``HAPAX_INPUT__START`` takes apart from points in time and offsets."""

_NUMBER = re.compile(r"[0-9]{1,19}")
_PLACE = re.compile(rf"([A-Za-z0-9._-]+)/([0-9]{{1,9}})/({_NUMBER.pattern})")


class Span(msgspec.Struct, frozen=True, gc=False):
    """What one partition has of it. ``start`` inclusive, ``stop`` exclusive, ``name`` of the words.

    ``stop`` is never below ``start``.
    """

    start: int
    stop: int
    name: str

    def encode(self) -> str:
        return f"{self.start}:{self.stop}:{self.name}"

    @classmethod
    def decode(cls, word: str) -> Span | None:
        """Read that word; one that is damaged counts as none."""
        start, _, rest = word.partition(":")
        stop, _, name = rest.partition(":")
        whole = _NUMBER.fullmatch(start) and _NUMBER.fullmatch(stop)
        return cls(int(start), int(stop), name) if whole else None

    def done(self, committed: int) -> int:
        return min(max(committed - self.start, 0), self.stop - self.start)


class SpanWords(msgspec.Struct, frozen=True):
    """Start and end as they were set. ``end`` None: the run never ends by itself."""

    start: str
    end: str | None = None

    @property
    def name(self) -> str:
        """The same for all words that mean the same; an age is one thing whenever it is said."""
        text = f"{_meaning(self.start)} {_meaning(self.end or '')}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def problems(self, now_ms: int) -> list[str]:
        start, end = time_of(self.start, now_ms), time_of(self.end or "", now_ms)
        found = []
        if end is not None and end > now_ms:
            found.append(
                f"HAPAX_INPUT__END={self.end} lies in the future: name a time that has passed, or"
                " latest for all that exists now"
            )
        if start is not None and start > now_ms:
            found.append(f"HAPAX_INPUT__START={self.start} lies in the future")
        if start is not None and end is not None and start >= end:
            found.append(
                f"HAPAX_INPUT__START={self.start} is not before HAPAX_INPUT__END={self.end}: the"
                " span between them is empty"
            )
        return found


def other_span(group: str, known: Mapping[TopicPartition, Span | None], name: str) -> str | None:
    """Return the sentence when a group's offsets are not of the span of this name.

    Partitions without a span are those that were added when others had the group's word: they count
    where no partition of their topic has one.
    """
    way_out = "give this run a HAPAX_APP of its own"
    for (topic, number), span in known.items():
        if span is not None and span.name != name:
            return (
                f"group {group} reads another span ({topic}/{number}: {span.start} to {span.stop}):"
                f" {way_out}, or the words that began it"
            )
    spanned = {topic for (topic, _number), span in known.items() if span is not None}
    for topic, number in known:
        if topic not in spanned:
            return (
                f"group {group} has an offset in {topic}/{number} already, which no span began:"
                f" {way_out}"
            )
    return None


def time_of(text: str, now_ms: int) -> int | None:
    """Return the point in time that a start or an end names, in Unix ms; None: it names none."""
    if text in WORDS or not text or offsets_of(text) is not None:
        return None
    return moment_ms(text, now_ms)


def offsets_of(text: str) -> dict[tuple[str, int], int] | None:
    """Read TOPIC/PARTITION/OFFSET lists; None: it is none. ValueError: a partition named twice."""
    found: dict[tuple[str, int], int] = {}
    for one in text.split(","):
        match = _PLACE.fullmatch(one.strip())
        if match is None:
            return None
        where = (match[1], int(match[2]))
        if where in found:
            raise ValueError(f"{match[1]}/{match[2]} is named twice")
        found[where] = int(match[3])
    return found


def _meaning(text: str) -> str:
    """Return a point in time as Unix ms, so that two spellings of it are the same."""
    try:
        offsets = offsets_of(text)
        if offsets is not None:
            return ",".join(f"{t}/{p}/{offset}" for (t, p), offset in sorted(offsets.items()))
        early, late = moment_ms(text, 0), moment_ms(text, 1)
    except ValueError:
        return text
    return f"{early}" if early == late else f"{-early} ago"
