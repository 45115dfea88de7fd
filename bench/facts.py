"""What the figures depend on: the machine, and the versions of all that is measured."""

from bench.peers import environments
from tests.fault.reporting import machine


def of_machine() -> dict[str, str]:
    return {"commit": machine.commit(), **machine.facts(), **environments.versions()}
