"""How the peers are started."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bench.contenders import Contender, Job
from bench.measure import Child
from bench.peers import environments
from hapax.sandbox import machine

if TYPE_CHECKING:
    from collections.abc import Sequence


class Plain(Contender, frozen=True, kw_only=True):
    """baseline.py: batches of up to 100 ms under backlog, one commit per poll for latency."""

    weaker: bool = False

    def start(self, job: Job) -> Child:
        command = [sys.executable, "-m", "bench.baseline", "--servers"]
        command += [job.sandbox.bootstrap_servers, "--group", job.pipeline]
        command += ["--source", job.source, "--target", job.target]
        command += ["--headers", str(int(self.headers))]
        command += ["--at-least-once"] * self.weaker
        command += (
            ["--at-end", "--wait-ms", str(self.interval_ms)] if job.at_end else ["--wait-ms=0"]
        )
        return Child(command, {}, job.log)


class Peer(Contender, frozen=True, kw_only=True):
    """A program that takes the arguments of bench/peers; its interval counts at any pace."""

    def arguments(self, job: Job) -> list[str]:
        given: dict[str, object] = {
            "servers": job.sandbox.bootstrap_servers,
            "group": job.pipeline,
            "source": job.source,
            "target": job.target,
            "records": job.records,
            "headers": int(self.headers),
            "interval-ms": self.interval_ms,
        }
        if self.counted:
            given |= {"counted": 1, "state": job.log.with_suffix(".state")}
        return [f"--{name}={value}" for name, value in given.items()]


class InC(Peer, frozen=True, kw_only=True):
    """librdkafka/copier.c."""

    def prepare(self) -> None:
        environments.copier_in_c()

    def start(self, job: Job) -> Child:
        program, library = environments.copier_in_c()
        return Child([str(program), f"--library={library}", *self.arguments(job)], {}, job.log)


class InPython(Peer, frozen=True, kw_only=True):
    """copier.py of a peer with a virtual environment of its own."""

    folder: str

    def prepare(self) -> None:
        environments.python_of(self.folder)

    def start(self, job: Job) -> Child:
        program = environments.program(self.folder)
        command = [str(environments.python_of(self.folder)), str(program), *self.arguments(job)]
        return Child(command, {}, job.log)


class Streams(Peer, frozen=True, kw_only=True):
    """streams/Copier.java: as it comes, or with settings and a JVM tuned for throughput."""

    tuned: bool = False

    def prepare(self) -> None:
        environments.streams_class_path()

    def start(self, job: Job) -> Child:
        own = [f"--tuned={int(self.tuned)}", f"--state={job.log.with_suffix('.state')}"]
        own += ["--counted=0"] * (not self.counted)
        if job.warm:
            topic, records = job.warm
            own += [f"--warm-source={topic}", f"--warm-target={job.target}-warm"]
            own += [f"--warm-records={records}", f"--warm-s={_WARM_S}"]
        command = [str(machine.java()), *(_TUNED if self.tuned else ())]
        command += ["-cp", environments.streams_class_path(), "Copier"]
        return Child([*command, *self.arguments(job), *own], {}, job.log)


_WARM_S = 20
_TUNED: Sequence[str] = ("-XX:+UseParallelGC", "-Xms512m", "-Xmx512m")
"""A collector for throughput, and a heap that never has to grow."""

PLAIN = Plain(name="plain loop")
PLAIN_BARE = Plain(name="plain loop, no headers", headers=False)
STREAMS = Streams(name="Kafka Streams", warms=True)
STREAMS_TUNED = Streams(name="Kafka Streams, tuned", warms=True, tuned=True)
QUIX = InPython(name="Quix Streams", folder="quixstreams")
AIOKAFKA = InPython(name="aiokafka", folder="aiokafka")
STREAMS_QUICK = Streams(name="Kafka Streams, 10 ms", interval_ms=10)
STREAMS_COUNTING = Streams(name="Kafka Streams, count per key", warms=True, counted=True)
QUIX_COUNTING = InPython(name="Quix Streams, count per key", folder="quixstreams", counted=True)
ALL: tuple[Contender, ...] = (
    PLAIN,
    PLAIN_BARE,
    Plain(name="plain loop, at least once", weaker=True),
    InC(name="librdkafka in C"),
    InC(name="librdkafka in C, no headers", headers=False),
    STREAMS,
    Streams(name="Kafka Streams, no headers", warms=True, headers=False),
    STREAMS_TUNED,
    Streams(name="Kafka Streams, tuned, no headers", warms=True, tuned=True, headers=False),
    QUIX,
    AIOKAFKA,
)
