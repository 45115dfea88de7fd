"""The state that a transform keeps, as its changelog has it: of one key, or all of it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hapax.core.errors import PreflightError
from hapax.core.ports import silent
from hapax.core.state import content_of, due_ms, parts_of
from hapax.kafka.read.changelog import Changelog
from hapax.kafka.read.offsets_client import BlockingOffsets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.ports import Tell
    from hapax.core.state import Changes
    from hapax.settings import Settings


class KeptValue(NamedTuple):
    """One value; ``written`` as the changelog has it (core/state.py)."""

    partition: int
    key: bytes
    name: str
    written: bytes

    @property
    def value(self) -> Any:
        """As JSON can have it."""
        return msgspec.to_builtins(msgspec.msgpack.decode(content_of(self.written)))

    @property
    def expires_ms(self) -> int | None:
        """In Unix time; None: it does not."""
        return due_ms(self.written)


def kept(settings: Settings, only: bytes | None = None, tell: Tell = silent) -> Iterator[KeptValue]:
    """Yield what committed transactions have kept, by partition; ``only``: of one key.

    Raises PreflightError when the changelog cannot be read.
    """
    changelog = Changelog(settings)
    with closing(BlockingOffsets(settings)) as client:
        if client.absent([changelog.topic]):
            problem = (
                f"topic {changelog.topic} does not exist or may not be read: {settings.app} keeps"
                " no state, or HAPAX_APP names another pipeline"
            )
            raise PreflightError([problem])
        partitions = [number for _topic, number in client.partitions([changelog.topic])]
    for number in partitions:
        start, end = changelog.span(number)
        found: Changes = {}
        for piece in changelog.read(("", number), start, end):
            tell(f"partition {number}", piece.next - start, end - start)
            new = piece.changes
            if only is not None:
                new = {at: value for at, value in new.items() if parts_of(at)[1] == only}
            found |= new
        for entry, value in sorted(found.items()):
            if value is not None:
                yield KeptValue(*parts_of(entry), value)
