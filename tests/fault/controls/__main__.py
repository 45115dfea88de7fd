"""``python -m tests.fault.controls NAME``: one control, until SIGTERM.

It takes the environment of the service. A peer goes on in the environment that is its own.
With ``--all``, ``--quick`` or ``--play NAME ...`` the trials of the controls are played.
"""

import os
import sys

from bench.peers.environment import environment
from tests.fault.controls.contract import Contract, contract

LOOPS = {
    "auto-commit": "AutoCommit",
    "commit-after-produce": "CommitAfterProduce",
    "redis-set-nx": "SetNxThenProcess",
    "without-rewind": "TransactionsWithoutRewind",
    "plain-transactions": "PlainTransactions",
}
PEERS = ("quixstreams", "aiokafka")
INSIDE = "CONTROL_PEER"
"""Says that this is the peer's own interpreter already."""


def main(words: list[str]) -> int:
    if words[0].startswith("-"):
        # A peer's environment has nothing of what this needs.
        from tests.fault.controls import trials  # noqa: PLC0415
        from tests.fault.controls.plans import CONTROLS  # noqa: PLC0415

        return trials.main(CONTROLS, words)
    be(words[0])
    return 0


def be(name: str) -> None:
    if name in PEERS and os.environ.get(INSIDE) != name:
        python = environment(name)
        os.environ[INSIDE] = name
        os.execv(python, [str(python), "-m", "tests.fault.controls", name])  # noqa: S606 - no shell
    _run(name, contract())


def _run(name: str, ours: Contract) -> None:
    # Each library is there in one environment only.
    if name == "quixstreams":
        from tests.fault.controls import quix  # noqa: PLC0415

        quix.run(ours)
    elif name == "aiokafka":
        from tests.fault.controls import aio  # noqa: PLC0415

        aio.run(ours)
    elif name == "confluent-example":
        from tests.fault.controls.example import Example  # noqa: PLC0415

        Example(ours).run()
    else:
        from tests.fault.controls import loops  # noqa: PLC0415

        loops.start(LOOPS[name], ours)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
