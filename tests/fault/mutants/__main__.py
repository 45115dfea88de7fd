"""``python -m tests.fault.mutants NAME``: the real service with one rule broken, until SIGTERM.

It takes the environment of the service; ``none`` breaks nothing. With ``--all``, ``--quick`` or
``--play NAME ...`` the trials of the mutants are played; with ``--unbroken`` on top, the same
faults strike the service as it is, which must be clean.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.fault.mutants import core, kafka, lanes

if TYPE_CHECKING:
    from collections.abc import Callable

PATCHES: tuple[Callable[[], None], ...] = (
    core.claim_then_drop,
    core.no_fence_on_doubt,
    core.no_rewind,
    core.progress_one_too_far,
    core.progress_one_too_short,
    kafka.abort_after_commit_timeout,
    kafka.generation_minus_one,
    kafka.ignored_delivery_reports,
    kafka.ignored_produce_exceptions,
    kafka.no_group_metadata,
    kafka.offsets_outside_the_transaction,
    kafka.random_transactional_id,
    kafka.read_uncommitted,
    kafka.reset_to_latest,
    lanes.two_transactions_without_gate,
)
MUTANTS = {patch.__name__.replace("_", "-"): patch for patch in PATCHES}


def main(words: list[str]) -> int:
    """Be a mutant, or play the trials of all; return the exit code."""
    if words[0].startswith("-"):
        # A worker that starts again must not wait for what only the trials need.
        from tests.fault.controls import trials  # noqa: PLC0415
        from tests.fault.mutants.plans import MUTANTS as PLANS  # noqa: PLC0415
        from tests.fault.mutants.plans import unbroken  # noqa: PLC0415

        rest = [word for word in words if word != "--unbroken"]
        return trials.main(PLANS if rest == words else unbroken(PLANS), rest)
    return be(words[0])


def be(name: str) -> int:
    """Run the service with one rule broken; return its exit code."""
    if name != "none":
        MUTANTS[name]()
    from hapax.commands.run import run  # noqa: PLC0415 - only now: what it reads is changed

    return run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
