"""From an id as outputs carry it back to the claim that the pipeline made of it. Pure.

A claim is the id with the source where it was found; the header ``hapax-id`` of an output holds
the id alone. An output keeps its record's headers, so sources that are headers can be asked again;
key and value may have become others. Where more than one source may have given the id, nothing is
guessed: a claim under a wrong source could drop a sound event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core.headers import ID
from hapax.core.identity import Identity
from hapax.core.records import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.records import Headers

_STRUCTURED = b"application/cloudevents+json"


class ClaimSources:
    """The configured chain of id sources, each by itself."""

    def __init__(self, sources: Sequence[str]) -> None:
        self._chain = [(source, Identity([source])) for source in sources]

    def candidates(self, event_id: bytes) -> dict[str, bytes]:
        """Return, by source, the claim that this id would make there."""
        made = {source: self._claim(source, identity, event_id) for source, identity in self._chain}
        return {source: claim for source, claim in made.items() if claim}

    def claim_of(self, output: Record, event_id: bytes) -> bytes | None:
        """Return the claim of the record that this output came from; None: it cannot be told."""
        unproven: list[bytes] = []
        for source, identity in self._chain:
            found = identity.identify([output])
            proves = source.startswith(("cloudevents", "header:")) and not _is_hapax_id(source)
            if proves and found.ids[0] == event_id:
                return None if unproven else found.claims[0]
            if proves and not (source == "cloudevents" and _structured(output)):
                continue  # an output has its record's headers, so this source gave nothing
            if claim := self._claim(source, identity, event_id):
                unproven.append(claim)
        return unproven[0] if len(unproven) == 1 else None

    def _claim(self, source: str, identity: Identity, event_id: bytes) -> bytes:
        stand_in = _stand_in(source, event_id)
        return identity.identify([stand_in]).claims[0] if stand_in is not None else b""


def _is_hapax_id(source: str) -> bool:
    # Outputs carry our own header of this name in place of the record's.
    return source.lower() == f"header:{ID}"


def _structured(record: Record) -> bool:
    return any(
        name.lower() == "content-type" and (value or b"").startswith(_STRUCTURED)
        for name, value in record.headers
    )


def _stand_in(source: str, event_id: bytes) -> Record | None:
    """Return a record in which this source finds this id; None when there can be none."""
    kind, _, argument = source.partition(":")
    if kind == "key":
        return _record(key=event_id)
    if kind == "header":
        return _record(headers=((argument.lower(), event_id),))
    if kind == "cloudevents":
        origin, nul, number = event_id.partition(b"\0")
        if not nul:
            return None
        return _record(headers=(("ce_source", origin), ("ce_id", number)))
    try:
        value: object = event_id.decode()
    except UnicodeDecodeError:
        return None
    for token in reversed(argument[1:].split("/")):
        value = {token.replace("~1", "/").replace("~0", "~"): value}
    return _record(value=msgspec.json.encode(value))


def _record(
    *, key: bytes | None = None, value: bytes | None = None, headers: Headers = ()
) -> Record:
    return Record("", 0, 0, key, value, headers)
