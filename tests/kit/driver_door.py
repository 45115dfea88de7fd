"""The ports of a Spark driver that its executors come to, so that the way can be cut."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self

from hapax.sandbox.ports import LOOPBACK, Ports
from tests.kit.forwarder import Forwarder

ADDRESS = "127.0.0.2"
"""Where executors are told that the driver is; it listens on the same ports of 127.0.0.1."""


class DriverDoor:
    """Passes executors on to a driver that has been given ``properties``; one driver at a time."""

    def __init__(self) -> None:
        self._exits = ExitStack()
        self._ports: list[int] = []
        self._doors: list[Forwarder] = []

    def __enter__(self) -> Self:
        ports = Ports()
        self._exits.callback(ports.close)
        self._ports = [ports.reserve(), ports.reserve()]
        self._doors = [
            self._exits.enter_context(Forwarder(port, ADDRESS, port)) for port in self._ports
        ]
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    @property
    def properties(self) -> dict[str, str]:
        """Spark's, which make a driver listen behind this door."""
        calls, blocks = self._ports
        return {
            "spark.driver.host": ADDRESS,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.port": str(calls),
            "spark.driver.blockManager.port": str(blocks),
            # Behind another port nobody would find it.
            "spark.port.maxRetries": "1",
        }

    def cut(self) -> int:
        """Break all connections and refuse new ones; return how many broke."""
        return sum(door.lead_to(0) for door in self._doors)

    def open(self) -> None:
        """Let connections through again."""
        for door, port in zip(self._doors, self._ports, strict=True):
            door.lead_to(port)
