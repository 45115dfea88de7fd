"""Who is measured: the plain loop, and the service with and without claims."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from bench.measure import Child

if TYPE_CHECKING:
    from pathlib import Path

    from hapax.sandbox import Sandbox


class Contender(msgspec.Struct, frozen=True):
    """A program that brings the records of one topic to another, exactly once."""

    name: str
    claims: bool

    def start(
        self, sandbox: Sandbox, pipeline: str, topics: tuple[str, str], log: Path, *, at_end: bool
    ) -> Child:
        """Run it as ``pipeline``: a name of its own each time, or it would go on where it ended."""
        raise NotImplementedError


class Plain(Contender, frozen=True):
    """baseline.py: batches of up to 100 ms under backlog, one commit per poll for latency."""

    def start(
        self, sandbox: Sandbox, pipeline: str, topics: tuple[str, str], log: Path, *, at_end: bool
    ) -> Child:
        command = [sys.executable, "-m", "bench.baseline", "--servers", sandbox.bootstrap_servers]
        command += ["--group", pipeline, "--source", topics[0], "--target", topics[1]]
        command += ["--at-end", "--wait-ms", "100"] if at_end else ["--wait-ms", "0"]
        return Child(command, {}, log)


class Service(Contender, frozen=True):
    """``python -m hapax run``, all settings as they come."""

    def start(
        self, sandbox: Sandbox, pipeline: str, topics: tuple[str, str], log: Path, *, at_end: bool
    ) -> Child:
        env = sandbox.environment() | {
            "HAPAX_APP": pipeline,
            "HAPAX_INSTANCE": "bench-0",
            "HAPAX_INPUT__TOPICS": topics[0],
            "HAPAX_OUTPUT__TOPIC": topics[1],
            "HAPAX_TELEMETRY__PORT": "0",
            "HAPAX_STOP_AFTER__AT_END": str(at_end).lower(),
        }
        if not self.claims:
            del env["HAPAX_DEDUP__REDIS_URL"]
        return Child([sys.executable, "-m", "hapax", "run"], env, log)


PLAIN = Plain("plain loop", claims=False)
HAPAX = Service("Hapax", claims=False)
HAPAX_CLAIMS = Service("Hapax, claims", claims=True)
ALL: tuple[Contender, ...] = (PLAIN, HAPAX, HAPAX_CLAIMS)
