"""Settings of what is read and of what is written: topics, and the formats of their values."""

from typing import Annotated, Literal

from pydantic import Field

from hapax.core.formats import Format
from hapax.settings.base import SettingsGroup
from hapax.settings.kafka import TargetKafkaSettings
from hapax.settings.validators import END, PATH, START, TOPIC, TOPICS
from hapax.settings.value_types import choice

OutputTimestamp = Literal["record", "now"]
Partitioner = Literal["murmur2", "consistent_random", "round_robin", "random"]


class InputSettings(SettingsGroup):
    """What is read."""

    topics: Annotated[tuple[str, ...], TOPICS] = Field(
        description="Topics to read.", examples=["orders"]
    )
    start: Annotated[str, START] = Field(
        default="earliest",
        description="Where a group without offsets starts. earliest loses nothing; refuse is for "
        "pipelines that must never start over. A time, or an age: at the first record of that time "
        "or later.",
    )
    end: Annotated[str | None, END] = Field(
        default=None,
        description="Where the run ends, before the first record of that time or later, and exits "
        "with 0: a backfill. latest: at the ends that were there when the group began. The ends "
        "are looked up once and kept with the group's offsets, so a restart continues to the same. "
        "Unset: never.",
    )
    format: Annotated[Format, choice(Format)] = Field(
        default="bytes",
        description="What the values are: the function finds them decoded in `record.data`. avro, "
        "protobuf and json-schema need HAPAX_REGISTRY__URL and "
        "`pip install 'hapax-kafka[registry]'`.",
    )
    reader_schema: Annotated[str | None, PATH] = Field(
        default=None,
        description="File with the Avro schema that records are resolved to, whatever version "
        "wrote them. Unset: they are read as they were written.",
    )


class OutputSettings(SettingsGroup):
    """Where outputs go."""

    topic: Annotated[str, TOPIC] = Field(
        description="Topic of the outputs that name no topic themselves.", examples=["orders-clean"]
    )
    partitioner: Annotated[Partitioner, choice(Partitioner)] = Field(
        default="murmur2",
        description="How a key finds its partition. murmur2 is what Java producers do, so keys "
        "written by both meet in the same partition.",
    )
    timestamp: Annotated[OutputTimestamp, choice(OutputTimestamp)] = Field(
        default="record",
        description="Timestamp of outputs that name none themselves: that of their record, or the "
        "time of writing, for records whose timestamps the output topic would refuse "
        "(message.timestamp.before.max.ms, message.timestamp.after.max.ms).",
    )
    kafka: TargetKafkaSettings
    format: Annotated[Format, choice(Format)] = Field(
        default="bytes",
        description="What data that the function returns is encoded as. Values that are bytes are "
        "written as they are.",
    )
    schema_file: Annotated[str | None, PATH] = Field(
        default=None,
        alias="schema",
        description="File with the schema of the outputs, which the subject must have. Unset: the "
        "latest version of the subject.",
    )
