"""The marker of a spool: which records are in Kafka. A committed offset (marked_transaction.py).

The number is the sequence of the next record; the metadata names the spool, and the nonce of the
open that wrote the record before. Of two copies of a spool that both went on, each has nonces of
its own: the one whose records are not those in Kafka finds another nonce there than its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hapax.spool.errors import SpoolDisagreesError

if TYPE_CHECKING:
    from hapax.spool.log import SpoolLog

_FORM = "hapax-spool1"
_NONE = "-"
_WORDS = 3
WHAT_TO_DO = "Nothing was published. docs/publish.md, section Stops, describes how to continue"


class SpoolMarker(NamedTuple):
    """Everything below ``next`` is in Kafka."""

    next: int
    spool: str
    nonce: bytes

    @property
    def metadata(self) -> str:
        """What is committed beside the number."""
        return f"{_FORM} {self.spool} {self.nonce.hex() or _NONE}"

    @classmethod
    def parse(cls, number: int, metadata: str) -> SpoolMarker:
        """Read what was committed; raise SpoolDisagreesError when another program wrote it."""
        words = metadata.split(" ")
        if len(words) != _WORDS or words[0] != _FORM:
            raise SpoolDisagreesError(
                f"the spool's marker was overwritten: it says {number}, {metadata!r}. {WHAT_TO_DO}"
            )
        return cls(number, words[1], b"" if words[2] == _NONE else bytes.fromhex(words[2]))


def agree(marker: SpoolMarker, spool: str, log: SpoolLog) -> None:
    """Raise SpoolDisagreesError unless the marker can be that of this very spool."""
    if marker.spool != spool:
        raise SpoolDisagreesError(
            f"the marker is that of spool {marker.spool}, and the folder is {spool}. {WHAT_TO_DO}"
        )
    if marker.next > log.next:
        raise SpoolDisagreesError(
            f"records up to {marker.next - 1} are in Kafka, and the spool ends with"
            f" {log.next - 1}: the folder is an old copy. {WHAT_TO_DO}"
        )
    if marker.next < log.first:
        raise SpoolDisagreesError(
            f"records up to {marker.next - 1} are in Kafka, and the spool begins with {log.first}:"
            f" the records between are gone, or the marker was moved back. {WHAT_TO_DO}"
        )
    if log.nonce_before(marker.next) != marker.nonce:
        raise SpoolDisagreesError(
            f"record {marker.next - 1} in Kafka is not the one in this folder: another copy"
            f" of the spool has published. {WHAT_TO_DO}"
        )
