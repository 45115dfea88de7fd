"""A worker that freezes itself where a zombie does most harm: with a batch that it is to commit."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from hapax import Output, Poison, Record
from hapax.core.offset_commit import GroupOffset
from hapax.core.records import Message
from hapax.kafka.produce.target import TargetLane

FREEZE_AT = "FREEZE_AT"
"""The file whose making freezes the process that made it."""
_run = TargetLane.run


def pass_on(record: Record) -> Output:
    """Pass a record on, to the partition of its number."""
    return Output(record.value, partition=record.partition)


def refuse_poison(record: Record) -> Output:
    """Pass a record on, unless it says that it is poison."""
    if record.value == b"poison":
        raise Poison("as it says")
    return pass_on(record)


def run(lane: TargetLane, messages: Sequence[Message], offset: GroupOffset) -> None:
    """Freeze before the first outputs of the first process."""
    mark = os.environ.get(FREEZE_AT)
    if messages and mark is not None:
        try:
            Path(mark).touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGSTOP)
    _run(lane, messages, offset)


TargetLane.run = run  # type: ignore[method-assign,assignment]
