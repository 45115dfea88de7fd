"""Settings of the Spark engine."""

from typing import Annotated, Literal

from pydantic import Field

from hapax.settings.base import SettingsGroup
from hapax.settings.properties import SPARK_PROPERTIES
from hapax.settings.validators import ADDRESS, FUNCTION, PATH, PATHS
from hapax.settings.value_types import choice, duration, whole

Publish = Literal["together", "parallel"]


class SparkSettings(SettingsGroup):
    """How the pipeline runs with `HAPAX_ENGINE=spark`."""

    master: Annotated[str, ADDRESS] = Field(
        default="local[*]",
        repr=False,
        description="Where tasks run: local[N] within this container, or the address of a "
        "cluster (spark://host:port, k8s://https://host:port).",
    )
    properties: Annotated[dict[str, str], SPARK_PROPERTIES] = Field(
        default_factory=dict,
        repr=False,
        description="Further Spark properties. Those that would break the guarantee, or that "
        "have a setting of their own, are refused.",
        json_schema_extra={"default": "{}"},
    )
    ship: Annotated[tuple[str, ...] | None, PATHS] = Field(
        default=None,
        description="What goes to the executors of a cluster in addition to the module or package "
        "of the function: folders, .py, .zip and .egg files, and one packed environment "
        "(.tar.gz), whose Python they run then.",
    )
    executor_timeout_ms: Annotated[int, duration("1s", "1h")] = Field(
        default=30_000,
        alias="executor_timeout",
        description="How long a start waits for the master and the first executor of a cluster.",
    )
    lanes: Annotated[int | None, whole(1, 10_000)] = Field(
        default=None,
        description="How many tasks work at once; the partitions are spread over them. Unset: as "
        "many as Spark has cores.",
    )
    range_interval_ms: Annotated[int, duration("100ms", "10m")] = Field(
        default=2_000,
        alias="range_interval",
        description="How long one task works while records keep coming, in transactions of "
        "HAPAX_TRANSACTION__INTERVAL; then it reports, and another one takes its place, for which "
        "records wait some 0.1 s. Longer ranges cost less; on a cluster a stop waits for the "
        "running ones.",
    )
    dataframe: Annotated[str | None, FUNCTION] = Field(
        default=None,
        description="A function from DataFrame to DataFrame, run by Structured Streaming instead "
        "of HAPAX_TRANSFORM. Unset: records.",
    )
    checkpoint: Annotated[str | None, ADDRESS] = Field(
        default=None,
        repr=False,
        description="Where a pipeline keeps its positions and state: a folder or an address on "
        "durable storage. Required with HAPAX_SPARK__DATAFRAME; records need none.",
    )
    trigger_interval_ms: Annotated[int, duration("10ms", "24h")] = Field(
        default=1_000,
        alias="trigger_interval",
        description="Least time between two micro-batches of a pipeline.",
    )
    batch_records_max: Annotated[int, whole(1, 100_000_000)] = Field(
        default=100_000,
        description="Most input records of one micro-batch of a pipeline: what it writes must "
        "fit into one transaction.",
    )
    publish: Annotated[Publish, choice(Publish)] = Field(
        default="together",
        description="How a pipeline's micro-batch becomes visible: together, in one transaction of "
        "one producer; or parallel, in parts, by tasks of Spark with a transaction each.",
    )
    jars: Annotated[str | None, PATH] = Field(
        default=None,
        description="Folder with Spark's Kafka connector, for a pipeline. Unset: fetched once "
        "into the user's cache.",
    )
