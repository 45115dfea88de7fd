"""The control of mirror_frozen.py: the transactional id belongs to the process."""

import os

from hapax.core.records import TopicPartition
from hapax.kafka.produce import target
from hapax.kafka.produce.micro_batch import MarkedNames
from tests.kit.mirror_frozen import pass_on

__all__ = ["pass_on"]

_names = target.target_names


def names(app: str, where: TopicPartition) -> MarkedNames:
    """Return an id for each process and partition; the progress is where it was."""
    right = _names(app, where)
    return right._replace(
        transactional_id=f"{right.transactional_id}/{os.environ['HAPAX_INSTANCE']}"
    )


target.target_names = names
