"""From an id as outputs carry it back to the claim that the pipeline made of it. Pure.

A claim is the id with the source where it was found; the header ``hapax-id`` of an output holds
the id alone. An output keeps its record's headers, so sources that are headers can be asked again;
key and value may have become others. Where more than one source may have given the id, nothing is
guessed: a claim under a wrong source could drop a sound event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.id_sources import id_source
from hapax.core.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.records import Record


class ClaimSources:
    """The configured chain of id sources, each by itself."""

    def __init__(self, sources: Sequence[str]) -> None:
        self._chain = [(id_source(source), Identity([source])) for source in sources]

    def candidates(self, event_id: bytes) -> dict[str, bytes]:
        """Return, by source, the claim that this id would make there."""
        sources = (source for source, _identity in self._chain)
        return {
            source.text: source.tag + event_id for source in sources if source.possible(event_id)
        }

    def claim_of(self, output: Record, event_id: bytes) -> bytes | None:
        """Return the claim of the record that this output came from; None: it cannot be told."""
        unproven: list[bytes] = []
        for source, identity in self._chain:
            found = identity.identify([output])
            if source.proves and found.ids[0] == event_id:
                return None if unproven else found.claims[0]
            if source.proves and source.absent:
                continue
            if source.possible(event_id):
                unproven.append(source.tag + event_id)
        return unproven[0] if len(unproven) == 1 else None
