"""Claims of native records: their digests, owners and commands without an object for each.

What these sequences hold is what redis_layout.py returns for a list of records;
the commands of a whole batch are put together by the native ids themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hapax.claims.redis_layout import DIGEST_BYTES, around, owner_head

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.claims.redis_layout import Layout
    from hapax.core.record_path import Ids, RecordPath

_OFFSET_BYTES = 4
_HIGH = 32


class Digests(Sequence[bytes]):
    """The digests of a batch as one text."""

    def __init__(self, ids: Ids, salt: bytes) -> None:
        self.ids = ids
        self.text = ids.digests(salt)

    def __len__(self) -> int:
        return len(self.text) // DIGEST_BYTES

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.text[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES]


class Owners(Sequence[bytes]):
    """The owners of a batch as bytes; ``heads``: what the owners of each run have in common."""

    def __init__(self, records: RecordPath, numbers: Mapping[str, bytes]) -> None:
        self._offsets = records.offsets
        self._runs = records.runs
        self.heads = [
            owner_head(numbers[topic], partition, first >> _HIGH)
            for topic, partition, _start, _count, first, *_ in self._runs
        ]

    def __len__(self) -> int:
        return len(self._offsets) // _OFFSET_BYTES

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        for head, (_topic, _partition, start, count, *_) in zip(
            self.heads, self._runs, strict=True
        ):
            if start <= index < start + count:
                return head + self._offsets[index * _OFFSET_BYTES : (index + 1) * _OFFSET_BYTES]
        raise IndexError(index)


def is_uniform(records: RecordPath) -> bool:
    """Return whether the offsets of each run differ in their low 4 bytes only."""
    return all(run[4] >> _HIGH == (run[5] - 1) >> _HIGH for run in records.runs)


def native_setnx(
    prefix: bytes, layout: Layout, digests: Digests, owners: Owners, date: bytes
) -> bytes | None:
    """Return what ``redis_layout.setnx`` does for a whole batch; None: not one form fits all."""
    lengths = {len(head) for head in owners.heads}
    if len(lengths) != 1:
        return None
    value = b"\r\n$%d\r\n%b" % (len(date) + lengths.pop() + _OFFSET_BYTES, date)
    cursor = 0 if layout.old == layout.new else layout.cursor
    return digests.ids.commands(
        digests.text,
        _form(prefix, layout.old),
        _form(prefix, layout.new),
        (cursor, layout.shift),
        value,
        owners.heads,
    )


def _form(prefix: bytes, bits: int) -> tuple[bytes, bytes, int, int]:
    head, middle, whole, rest = around(b"*4\r\n$6\r\nHSETNX", prefix, bits)
    return head, middle, whole, (0xFF << (8 - rest)) & 0xFF


def moved(digests: Digests, sent: Layout, met: Layout) -> list[int] | None:
    """Return the indices of ids whose bucket is another one in ``met``; None: not known here."""
    if (sent.old, sent.new) != (met.old, met.new):
        return None
    low, high = sorted((sent.cursor, met.cursor))
    return digests.ids.between(digests.text, sent.shift, low, high)
