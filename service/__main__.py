"""The command line: ``hapax`` and ``python -m service``. Thin; each command is a file."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that the arguments name."""
    if sys.argv[1:] == ["run"]:
        # The path of every restart: a killed worker must commit again within two seconds, and
        # the parser with its terminal library costs a tenth of that.
        from service.commands.run import run  # noqa: PLC0415

        sys.exit(run())
    from service.commands.tree import app  # noqa: PLC0415

    app()


if __name__ == "__main__":
    main()
