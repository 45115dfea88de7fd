"""The state that a transform keeps, as its changelog has it: of one key, all of it, or none.

A group that is moved back over records which have changed the state would change it twice. What is
not moved beyond them is no harm: records that are passed change nothing.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hapax.core.errors import ConfigurationError, HapaxError, PreflightError
from hapax.core.ports import silent
from hapax.kafka.admin.topics import empty_topic
from hapax.kafka.read.changelog import Changelog
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.processing.state import content_of, due_ms, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hapax.cluster.offset_moves import Move
    from hapax.core.ports import Tell
    from hapax.core.records import Progress
    from hapax.processing.state import Changes
    from hapax.settings import Settings


class KeptValue(NamedTuple):
    """One value; ``written`` as the changelog has it (processing/state.py)."""

    partition: int
    key: bytes
    name: str
    written: bytes

    @property
    def value(self) -> Any:
        """As JSON can have it; bytes are ``{"base64": ...}``."""
        return _shown(msgspec.msgpack.decode(content_of(self.written)))

    @property
    def expires_ms(self) -> int | None:
        """In Unix time; None: it does not."""
        return due_ms(self.written)


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else json.dumps(_shown(key)): _shown(one)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return list(map(_shown, value))
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return msgspec.to_builtins(value, enc_hook=repr)


def kept(settings: Settings, only: bytes | None = None, tell: Tell = silent) -> Iterator[KeptValue]:
    """Yield what committed transactions have kept, by partition; ``only``: of one key.

    Raises PreflightError when the changelog cannot be read.
    """
    changelog = Changelog(settings)
    with closing(BlockingOffsets(settings)) as client:
        if client.absent([changelog.topic]):
            raise PreflightError(
                f"topic {changelog.topic} does not exist or may not be read: {settings.app} keeps"
                " no state, or HAPAX_APP names another pipeline"
            )
        partitions = [number for _topic, number in client.partitions([changelog.topic])]
    for number in partitions:
        found: Changes = {}
        for piece in changelog.whole(("", number), tell):
            new = piece.changes
            if only is not None:
                new = {at: value for at, value in new.items() if parts_of(at)[1] == only}
            found |= new
        for entry, value in sorted(found.items()):
            if value is not None:
                yield KeptValue(*parts_of(entry), value)


class StateOfMoves:
    """What moves of a group's offsets mean for the state of its transform.

    beyond  by input partition the newest record that is read again and has changed the state
    drops   the state is deleted
    """

    def __init__(
        self, settings: Settings, moves: Sequence[Move], tell: Tell, *, drop: bool
    ) -> None:
        """``drop``: the state is to begin with nothing. Raises ConfigurationError where it cannot.

        The changelog is read where the group goes back.
        """
        self._settings, self.drops = settings, drop
        self.beyond: Progress = {}
        with closing(BlockingOffsets(settings)) as client:
            absent = client.absent([settings.state_topic])
            places = client.partitions(settings.input.topics)
            kept = () if absent else client.partitions([settings.state_topic])
        if drop and absent:
            raise ConfigurationError(f"--drop-state: there is no topic {settings.state_topic}")
        if drop and {move.placed.where for move in moves} != {*places}:
            problem = "--drop-state is for all: hapax offsets rewind --to earliest --drop-state"
            raise ConfigurationError(problem)
        if kept and not drop:
            numbers = {number for _topic, number in kept}
            self._look([one for one in moves if one.placed.partition in numbers], tell)

    def _look(self, moves: Sequence[Move], tell: Tell) -> None:
        changelog = Changelog(self._settings)
        for move in moves:
            where, committed = move.placed.where, move.placed.committed
            if committed is not None and move.offset >= committed:
                continue
            newest = max((one.source for one in changelog.whole(where, tell)), default=-1)
            if newest >= move.offset:
                self.beyond[where] = newest

    @property
    def remark(self) -> str:
        """What a person should know; empty: no state is kept, or it stays as it is."""
        if self.drops:
            return f"{self._settings.state_topic}: all state is deleted, and begins with nothing"
        if not self.beyond:
            return ""
        (topic, number), newest = next(iter(self.beyond.items()))
        return (
            f"{topic}/{number}: the state has changes of record {newest}, which would change it"
            f" twice ({len(self.beyond)} partitions): go to a later offset, or begin without state"
            " by --drop-state"
        )

    def require(self) -> None:
        """Raise HapaxError where the state would be changed twice."""
        if self.beyond:
            raise HapaxError(self.remark)

    def apply(self) -> None:
        """Delete the state, if that is wanted: after the offsets, or a kill would keep those."""
        if self.drops:
            empty_topic(self._settings, self._settings.state_topic)
