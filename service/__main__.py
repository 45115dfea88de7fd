"""The command line: ``hapax`` and ``python -m service``. Thin; each command is a file."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def main() -> None:
    """Run the command that the arguments name."""
    if sys.argv[1:] == ["run"]:
        # Until the service listens itself nothing is open that would have to be drained. The first
        # process of a container would otherwise not hear the signal at all.
        signal.signal(signal.SIGTERM, _leave)
        # The path of every restart: a killed worker must commit again within two seconds, and
        # the parser with its terminal library costs a tenth of that.
        from service.commands.run import run  # noqa: PLC0415

        sys.exit(run())
    from service.commands.tree import app  # noqa: PLC0415

    app()


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)


if __name__ == "__main__":
    main()
