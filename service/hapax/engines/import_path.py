"""What a child process needs to import business code where this process finds it."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path


def import_path() -> str:
    """Return a ``PYTHONPATH`` with all that this process imports from, but the standard library.

    Every interpreter has that of its own version. A process that is started later inherits the
    variable, and another version would read the modules of this one: "SRE module mismatch".
    """
    own = {Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib")}
    zipped = "python{}{}.zip".format(*sys.version_info)
    own |= {place for one in own for place in (one / "lib-dynload", one.parent / zipped)}
    known = [entry for entry in sys.path if entry and Path(entry) not in own]
    return os.pathsep.join(dict.fromkeys(known))
