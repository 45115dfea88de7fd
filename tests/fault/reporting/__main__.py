"""``python -m tests.fault.reporting``: the report of what runs and tests have left."""

import sys

from tests.fault.reporting.report import main

if __name__ == "__main__":
    sys.exit(main())
