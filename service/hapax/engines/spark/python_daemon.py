"""The parent of Spark's Python workers: PySpark's own, without a trace where the JVM let go.

A stop drops the task that Spark has begun meanwhile. Its Python worker finds its connection closed
(``BrokenPipeError``), and PySpark prints the traceback on standard error, where the service's own
lines go. Nothing went wrong: the task is taken again at the next start.
"""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon


def print_exc() -> None:
    """Print the traceback of what is handled, unless it is a connection that has ended."""
    if not isinstance(sys.exc_info()[1], ConnectionError):
        traceback.print_exc()


if __name__ == "__main__":
    # The name that it prints with.
    vars(daemon)["traceback"] = SimpleNamespace(
        print_exc=print_exc, format_exc=traceback.format_exc
    )
    daemon.manager()
