"""Which executors Spark has, asked every few seconds for the status page.

On a thread of its own: a JVM that hangs holds up neither the driver's loop nor the page, which says
how old the answer is.
"""

from __future__ import annotations

import time
from threading import Thread
from typing import TYPE_CHECKING, Any

from hapax.telemetry.spark_state import Executor

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import SparkContext

    from hapax.telemetry.events import Events

INTERVAL_S, SHARE_MAX = 3.0, 0.05
"""Of the thread's time at most so much goes into asking: hundreds are asked for less often."""
ONLY_ACTIVE = True


def watch_executors(
    context: SparkContext, events: Events, wait: Callable[[float], object] = time.sleep
) -> Thread:
    """Tell the executors until Spark is stopped or gone."""
    thread = Thread(target=_watch, args=(context, events, wait), name="executors", daemon=True)
    thread.start()
    return thread


def _watch(context: Any, events: Events, wait: Callable[[float], object]) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # comes without types

    try:
        ui = context.uiWebUrl or ""
        while (java := context._jsc) is not None:
            # The store behind Spark's own pages is there without them, too.
            began_s = time.monotonic()
            listed = java.sc().statusStore().executorList(ONLY_ACTIVE)
            found = [_executor(listed.apply(at)) for at in range(listed.size())]
            events.executors_changed(found, ui)
            wait(max(INTERVAL_S, (time.monotonic() - began_s) / SHARE_MAX))
    except (Py4JError, OSError, AttributeError, TypeError):
        return  # it was stopped meanwhile: the driver notices by itself when it is not to


def _executor(java: Any) -> Executor:
    return Executor(
        name=java.id(),
        address=java.hostPort(),
        cores=java.totalCores(),
        running=java.activeTasks(),
        done=java.completedTasks(),
        failed=java.failedTasks(),
        memory_bytes=java.memoryUsed(),
        memory_max_bytes=java.maxMemory(),
    )
