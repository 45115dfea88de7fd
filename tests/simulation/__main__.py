"""``python -m tests.simulation``: plays schedules; a defect is told with its seed and its steps."""

import sys

from tests.simulation.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
