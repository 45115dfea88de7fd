"""Micro-batches whose rows are chosen before any is visible, and published in parts.

All rows wait in files. A manifest names them and shares them out to lanes; its name is committed
with the marker (micro_batches.py), and from then on these rows are published and no others,
whatever a repetition of the micro-batch stages. Each lane has a transactional id and a marker of
its own, which counts how many of its parcels are published.

The transaction that commits the manifest's name also sets the marker of each lane to "none of this
manifest". A lane publishes only what follows a marker that names its manifest: an attempt that was
frozen before it began finds a later manifest, or none, and never publishes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hapax.core.errors import PositionLostError

if TYPE_CHECKING:
    from collections.abc import Sequence

_FORM = "hapax1"
_WORDS = 4
_WORDS_OF_LANE = 2
_NOTHING = "-"


class FixedBatch(NamedTuple):
    """Which rows of a micro-batch are published, and what they were made from.

    manifest  name of the file that names them; no two have the same
    checksum  of that file
    lanes     their number
    inputs    fingerprint of the micro-batch's input, see ``MicroBatch``
    """

    manifest: str
    checksum: str
    lanes: int
    inputs: str

    @property
    def words(self) -> str:
        return f"{self.manifest} {self.checksum} {self.lanes} {self.inputs or _NOTHING}"

    @classmethod
    def parse(cls, words: Sequence[str]) -> FixedBatch | None:
        """Read the words; None when another program wrote them."""
        if len(words) != _WORDS or not words[2].isdecimal():
            return None
        return cls(words[0], words[1], int(words[2]), words[3])


class LaneMarker(NamedTuple):
    """How many parcels of a manifest a lane has published."""

    done: int
    manifest: str

    @property
    def metadata(self) -> str:
        return f"{_FORM} {self.manifest}"

    @classmethod
    def parse(cls, number: int, metadata: str) -> LaneMarker | None:
        """Read what was committed; None when another program wrote it."""
        words = metadata.split(" ")
        if len(words) != _WORDS_OF_LANE or words[0] != _FORM:
            return None
        return cls(number, words[1])


GIVEN_UP = LaneMarker(0, _NOTHING)
"""The marker of a lane that has nothing to publish, because a person decided so."""


def published_parcels(lane: int, manifest: str, marker: LaneMarker | None) -> int:
    """Return how many parcels of this manifest the lane has published.

    Raises PositionLostError when its marker does not know the manifest: it may have published all
    or nothing of it, so neither publishing nor passing on is certain.
    """
    if marker is not None and marker.manifest == manifest:
        return marker.done
    found = "is gone" if marker is None else f"belongs to {marker.manifest}"
    raise PositionLostError(
        f"lane {lane} does not publish its part of {manifest}: its marker {found}, so what it has"
        " published of it is not known. Another query runs on this app, or the brokers or another"
        " program removed the marker. docs/dataframes.md, section Stops, describes how to continue"
    )
