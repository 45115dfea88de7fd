"""The guarantees that a pipeline can choose, and what each of them means elsewhere.

A further one is a row here, its name in ``Guarantee``, its class in kafka/produce and that class in
wiring.builders.TRANSACTIONS.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Guarantee = Literal["exactly_once", "at_least_once", "at_most_once"]


class Mode(NamedTuple):
    """What follows from a guarantee.

    transactional  outputs and offsets are one transaction
    engines        that can keep it
    """

    transactional: bool
    engines: tuple[str, ...]


MODES: Final[dict[Guarantee, Mode]] = {
    "exactly_once": Mode(transactional=True, engines=("worker", "spark")),
    "at_least_once": Mode(transactional=False, engines=("worker",)),
    "at_most_once": Mode(transactional=False, engines=("worker",)),
}
