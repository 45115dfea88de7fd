"""Rules of the DataFrame form: what it needs, and settings that would mean nothing to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.core.span import WORDS
from hapax.settings.base import Problem
from hapax.settings.redaction import hidden

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.settings.model import Settings

_DATAFRAME: Final = "HAPAX_SPARK__DATAFRAME"
_CHECKPOINT: Final = "HAPAX_SPARK__CHECKPOINT"
_SINK: Final = "--sink"


def dataframe_problems(settings: Settings) -> Iterator[Problem]:
    """Yield every rule of the DataFrame form that these settings break."""
    if settings.app.endswith(_SINK):
        yield Problem(
            ("HAPAX_APP",),
            f"HAPAX_APP={settings.app} ends in {_SINK}, which names the group that holds the "
            "marker of a DataFrame pipeline: choose another name",
        )
    pipeline = settings.spark.dataframe
    if pipeline is None:
        return
    if settings.engine != "spark":
        yield Problem(
            (_DATAFRAME, "HAPAX_ENGINE"),
            f"{_DATAFRAME}={pipeline} needs HAPAX_ENGINE=spark, which is {settings.engine}: set "
            "the engine, or use HAPAX_TRANSFORM",
        )
    yield from _checkpoint(settings)
    for name, given, instead in _foreign(settings):
        if given is not None:
            yield Problem(
                (_DATAFRAME, name),
                f"{name}={given} does not go with {_DATAFRAME}={pipeline}: {instead}",
            )


def _checkpoint(settings: Settings) -> Iterator[Problem]:
    checkpoint, master = settings.spark.checkpoint, settings.spark.master
    if checkpoint is None:
        yield Problem(
            (_DATAFRAME, _CHECKPOINT),
            f"{_DATAFRAME}={settings.spark.dataframe} needs {_CHECKPOINT}, which is unset: its "
            "positions and its state live there, so name a folder or an address that outlives "
            "this process",
        )
    elif not master.startswith("local") and _is_local(checkpoint):
        yield Problem(
            (_CHECKPOINT, "HAPAX_SPARK__MASTER"),
            f"{_CHECKPOINT}={hidden(checkpoint)} is a folder of this machine, which the executors "
            f"of HAPAX_SPARK__MASTER={hidden(master)} do not see: name shared storage with its "
            "scheme, like s3a://bucket/orders (a volume that all of them mount is written file:///)",
        )


def _is_local(checkpoint: str) -> bool:
    """Whether it is a plain path; ``file:///`` says that others see it."""
    return "://" not in checkpoint


def _foreign(settings: Settings) -> Iterator[tuple[str, object, str]]:
    """Yield settings that mean nothing here: the variable, what is given, what to do instead."""
    yield (
        "HAPAX_TRANSFORM",
        settings.transform,
        "the pipeline is the business rule; call the other from it, or unset one of them",
    )
    yield (
        "HAPAX_DEDUP__REDIS_URL",
        "***" if settings.dedup.enabled else None,
        "rows have no claims; use dropDuplicatesWithinWatermark in the pipeline",
    )
    yield (
        "HAPAX_DEAD_LETTER__TOPIC",
        settings.dead_letter.topic,
        "a row that fails has no input record; let the pipeline give bad rows a topic column",
    )
    yield (
        "HAPAX_INPUT__START",
        None if settings.input.start in WORDS else settings.input.start,
        "positions of a query are in its checkpoint; run the span in the records form",
    )
    yield (
        "HAPAX_INPUT__END",
        settings.input.end,
        "a query has no end in time; use HAPAX_STOP_AFTER__AT_END, or the records form",
    )
    yield (
        "HAPAX_STOP_AFTER__RECORDS",
        settings.stop_after.records,
        "a query stops between micro-batches only; use HAPAX_STOP_AFTER__AT_END",
    )
    yield (
        "HAPAX_KAFKA__SECURITY__OAUTH_MSK_REGION",
        settings.kafka.security.oauth_msk_region,
        "Kafka's Java client signs no requests; use SCRAM or a certificate",
    )
    yield (
        "HAPAX_GUARANTEE",
        None if "spark" in settings.mode.engines else settings.guarantee,
        "its only guarantee is exactly_once; Spark's own Kafka sink is at least once",
    )
