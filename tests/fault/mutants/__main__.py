"""``python -m tests.fault.mutants NAME``: the real service with one rule broken, until SIGTERM.

It takes the environment of the service; ``none`` breaks nothing. With ``--all``, ``--quick`` or
``--play NAME ...`` the trials of the mutants are played; with ``--unbroken`` on top, the same
faults strike the service as it is, which must be clean.
"""

import inspect
import sys

from tests.fault.mutants import patches
from tests.kit.mutants import Mutant

MUTANTS: dict[str, Mutant] = {
    name.replace("_", "-"): patch
    for name, patch in inspect.getmembers(patches, inspect.isfunction)
    if patch.__module__ == patches.__name__ and not name.startswith("_")
}


def main(words: list[str]) -> int:
    if words[0].startswith("-"):
        # A worker that starts again must not wait for what only the trials need.
        from tests.fault.controls import trials  # noqa: PLC0415
        from tests.fault.mutants.plans import MUTANTS as PLANS, unbroken  # noqa: PLC0415

        rest = [word for word in words if word != "--unbroken"]
        return trials.main(PLANS if rest == words else unbroken(PLANS), rest)
    return be(words[0])


def be(name: str) -> int:
    """Run the service with one rule broken; return its exit code."""
    if name != "none":
        MUTANTS[name](setattr)
    from hapax.commands.run import run  # noqa: PLC0415 - only now: what it reads is changed

    return run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
