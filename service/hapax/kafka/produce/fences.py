"""Transactional ids that are fenced: whoever used one can commit no more, what it left is aborted.

Those of lanes, of a worker of the same name, and those of earlier versions, which joined app and
instance by a dash. A process of such a version that was killed has left its transaction open under
that id, and nothing under a new id ends it before its timeout: its outputs hold up readers, its
offsets this start. One that only hangs could still commit what it has begun.

Whether there can be one is read from the group. Earlier versions commit without the cluster's id
(core/committed_metadata.py), this one with it: when every offset has it, this version has taken
over everywhere, and the old id, which may be that of another pipeline by now, is left alone.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from hapax.core.errors import PreflightError, ProducerDeadError
from hapax.kafka.produce.base import ProducerConfig
from hapax.kafka.produce.transaction import KafkaTransaction
from hapax.kafka.properties import former_id, lane_id, producer_properties, transactional_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.kafka.native import NativePath
    from hapax.settings import Settings


def named_transaction(
    settings: Settings, name: str, native: NativePath | None = None, **around: Any
) -> KafkaTransaction:
    """Return a producing side under a transactional id that is not the worker's."""
    properties = producer_properties(settings) | {"client.id": name, "transactional.id": name}
    return KafkaTransaction(ProducerConfig.of(settings, properties, native), **around)


def fence(settings: Settings, transactional_id: str) -> None:
    """Register a producer of this id and drop it.

    Raises ProducerDeadError when brokers do not answer: call again.
    """
    transaction = named_transaction(
        settings,
        transactional_id,
        clock=time,
        forward=lambda *_line: None,  # what matters about a fence is raised
        watch=lambda _call: nullcontext(),
    )
    try:
        transaction.open()
    finally:
        transaction.close()


def fence_predecessor(settings: Settings, of_earlier_version: Callable[[], bool]) -> list[str]:
    """Fence the id that this process had in earlier versions, where one may use it; see above.

    Before joining. With dynamic membership no process comes back under its name. Returns remarks.
    """
    static = settings.group.membership == "static"
    if not settings.mode.transactional or not static or not of_earlier_version():
        return []
    return fence_former(settings, former_id(settings))


def fence_former(settings: Settings, name: str) -> list[str]:
    """Fence an id of an earlier version; return remarks.

    It is no failure when that cannot be done, for want of the right or of an answer: brokers abort
    what was left after its timeout, and refuse the offsets of a process that is no member any more.
    """
    try:
        fence(settings, name)
    except (PreflightError, ProducerDeadError) as error:
        remark = (
            f"transactional id {name} of an earlier version could not be fenced ({error}): "
            "what a killed process of that version left open holds up readers until its "
            "transaction times out"
        )
        return [remark]
    return []


class LaneFences:
    """Registers producers under the ids of the lanes."""

    def __init__(self, settings: Settings, *, former: bool = False) -> None:
        """``former``: whether tasks of an earlier version may have left something."""
        self._settings = settings
        self._former = former
        self._ended: set[int] = set()

    def lane(self, number: int) -> None:
        """Fence a lane, and the first time that of an earlier version."""
        if self._former and number not in self._ended:
            fence_former(self._settings, former_id(self._settings, number))
            self._ended.add(number)
        fence(self._settings, lane_id(self._settings, number))

    def predecessor(self) -> None:
        """Fence a worker that ran under this name: its open transaction is over at once."""
        fence(self._settings, transactional_id(self._settings))
