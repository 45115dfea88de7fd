"""What Spark gives the sink to commit, without Spark: rows of tasks, as they wait in a spool."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from hapax.cluster.micro_batches import MicroBatch
from hapax.engines.spark.dataframe.staging import Parcel, Place, Spool
from hapax.settings import Settings, load_settings
from tests.kit.managed_process import required

QUERY = "query-1"


def sink_settings(servers: str, topic: str, **more: str) -> Settings:
    """Return settings of an app that is named as its topic."""
    return load_settings(required(app=topic, servers=servers, source="unused", target=topic) | more)


def spool_of(folder: Path, inline_bytes_max: int = 0) -> Spool:
    """Return a spool; unless it is told otherwise it keeps every row in a file."""
    return Spool(Place(str(folder)), inline_bytes_max)


def staged(spool: Spool, number: int, tasks: Sequence[Sequence[bytes]]) -> list[Parcel]:
    """Return what tasks hand over that were given these values for a micro-batch."""
    return [
        spool.store(iter([pa.record_batch({"value": pa.array(values, pa.binary())})]), name)
        for task, values in enumerate(tasks)
        for name in [f"{number}-{task}-0"]
    ]


def batch(number: int) -> MicroBatch:
    return MicroBatch(QUERY, number, f"input-{number}")
