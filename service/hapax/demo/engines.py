"""Which engine runs the pipeline: what is on the stage, and what is done to it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hapax.demo.cluster_rounds import break_cluster
from hapax.demo.cluster_stage import ClusterStage
from hapax.demo.rounds import break_workers
from hapax.demo.spark_rounds import break_spark
from hapax.demo.spark_stage import SparkStage, check_spark
from hapax.demo.stage import Stage

if TYPE_CHECKING:
    from hapax.demo.screen import DemoScreen
    from hapax.demo.story import Strike


def set_stage(
    engine: str, screen: DemoScreen, *, seed: int, rate: int, cluster: bool = False
) -> Stage:
    """Return a stage that is not built yet; raise DemoError when the engine cannot be had."""
    if engine != SparkStage.engine:
        return Stage(screen, seed=seed, rate=rate)
    check_spark()
    return (ClusterStage if cluster else SparkStage)(screen, seed=seed, rate=rate)


def strike(stage: Stage) -> Strike:
    """Return what breaks this stage."""
    if isinstance(stage, ClusterStage):
        return partial(break_cluster, stage)
    if isinstance(stage, SparkStage):
        return partial(break_spark, stage)
    return partial(break_workers, stage)
