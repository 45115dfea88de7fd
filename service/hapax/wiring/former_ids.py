"""The transactional ids of earlier versions: fenced once, at the first start after the upgrade.

Earlier versions joined app and instance by a dash. A process of theirs that was killed has left its
transaction open under that id, and nothing of ours ends it before its timeout: its outputs hold up
readers, its offsets our own start. One that only hangs could still commit what it has begun.

Whether there can be one is read from the group. Earlier versions commit without the cluster's id
(core/committed_metadata.py), this one with it: when every offset has it, this version has taken
over everywhere, and the old id, which may be that of another pipeline by now, is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.errors import PreflightError, ProducerDeadError
from hapax.kafka.properties import former_id

if TYPE_CHECKING:
    from hapax.kafka.consume.source import KafkaSource
    from hapax.settings import Settings


def fence_predecessor(settings: Settings, source: KafkaSource) -> list[str]:
    """Fence the id that this process had in earlier versions, where one may use it; see below.

    Before joining. With dynamic membership nobody comes back under its name.
    """
    static = settings.group.membership == "static"
    if not settings.mode.transactional or not static or not source.of_earlier_version():
        return []
    return fence_former(settings, former_id(settings))


def fence_former(settings: Settings, name: str) -> list[str]:
    """Fence an id of an earlier version; return remarks.

    It is no failure when that cannot be done, for want of the right or of an answer: brokers abort
    what was left after its timeout, and refuse the offsets of a process that is no member any more.
    """
    from hapax.wiring.task import fence_lane

    try:
        fence_lane(settings, name)
    except (PreflightError, ProducerDeadError) as error:
        remark = (
            f"transactional id {name} of an earlier version could not be fenced ({error}): "
            "what a killed process of that version left open holds up readers until its "
            "transaction times out"
        )
        return [remark]
    return []
