"""The sink in a process that kills itself at a chosen step of the commit, or finds damage."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hapax.spark import HapaxSink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.engines.spark.dataframe.publication import Publishing
    from hapax.engines.spark.dataframe.sink import SinkOptions

STEPS = ("open", "begin", "send", "send_offsets", "commit", "published")


class DyingSink(HapaxSink):
    """Dies at the step that the folder's file ``step`` names; the file goes with it."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    @classmethod
    @contextmanager
    def publishing(cls, options: SinkOptions) -> Iterator[Publishing]:
        named = Path(options.spool).parent / "step"
        step = named.read_text()
        with super().publishing(options) as publishing:
            publisher: Any = publishing.publisher
            if step == "published":
                publish = publisher.publish
                publisher.publish = lambda *arguments: _then_die(publish(*arguments))
            else:
                setattr(publisher._marked.transaction, step, _die)
            yield publishing


class CuttingSink(HapaxSink):
    """Finds one file of the spool cut where one Arrow message ends and the next begins."""

    @classmethod
    def name(cls) -> str:
        return "cutting"

    @classmethod
    @contextmanager
    def publishing(cls, options: SinkOptions) -> Iterator[Publishing]:
        file = min(Path(options.spool).glob("*.arrow"))
        whole = file.read_bytes()
        # Each message begins with this mark; what is before the last record batch is well formed.
        file.write_bytes(whole[: whole.rindex(b"\xff\xff\xff\xff", 0, len(whole) - 8)])
        with super().publishing(options) as publishing:
            yield publishing


def _then_die(_published: object) -> None:
    _die()


def _die(*_arguments: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
