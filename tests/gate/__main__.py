"""``python -m tests.gate test``: what make test plays. ``--help`` names the others."""

from __future__ import annotations

import argparse
import sys
import time

from tests.gate import parts, running, verdict

AGAIN = ".venv/bin/pytest"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gate", description=__doc__)
    parser.add_argument("what", choices=["test"])
    parser.parse_args()
    began = time.monotonic()
    outcomes = running.run(parts.gate())
    right = verdict.tell("make test", outcomes, time.monotonic() - began, again=AGAIN)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
