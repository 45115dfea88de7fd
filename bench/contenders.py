"""Who is measured: the service in its forms. The peers are in bench/peers/contenders.py."""

import importlib.util
import sys
from pathlib import Path

import msgspec

from bench import traffic
from bench.measure import Child
from bench.peers.environments import MissingError
from hapax.sandbox import Sandbox
from hapax.settings import VARIABLES
from hapax.settings.model import Guarantee

INTERVAL_MS = 100
FUNCTION = "bench.transforms:unchanged"


class Job(msgspec.Struct, frozen=True):
    """What a contender has to do.

    pipeline  a name of its own each time, or it would go on where it ended
    records   how many there are; 0: it runs until SIGTERM, and visibility counts, not throughput
    warm      topic and number of records of what a JVM copies before; None: nothing
    """

    sandbox: Sandbox
    pipeline: str
    source: str
    target: str
    log: Path
    records: int = 0
    at_end: bool = True
    warm: tuple[str, int] | None = None


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """A program that brings the records of one topic to another.

    headers  whether it adds the two headers ``hapax-id`` and ``hapax-source``
    interval_ms  between commits under a backlog, where no 50,000 records come first
    claims   whether it removes duplicates by claims in Redis
    warms    whether it copies other records before what is measured (JVMs)
    counted  whether its outputs end with how often their key has come, from state that it keeps
    """

    name: str
    headers: bool = True
    interval_ms: int = INTERVAL_MS
    claims: bool = False
    warms: bool = False
    counted: bool = False

    def prepare(self) -> None:
        """Make what it needs; raises MissingError when that cannot be had here."""

    def start(self, job: Job) -> Child:
        raise NotImplementedError


class Service(Contender, frozen=True, kw_only=True):
    """``python -m hapax run``, all settings as they come but these.

    native     the native record path: on, off, or as it comes where None
    transform  a Python function; None: records pass unchanged without any
    more       further variables and their values
    python     the interpreter, which has this version of the service or another one
    """

    native: bool | None = None
    transform: str | None = None
    guarantee: Guarantee = "exactly_once"
    more: tuple[tuple[str, str], ...] = ()
    python: str = sys.executable

    @property
    def command(self) -> list[str]:
        """What starts ``hapax``."""
        return [self.python, "-m", "hapax"]

    def prepare(self) -> None:
        if self.native:
            if not _has_native_setting():
                raise MissingError("this version of the service has no native record path")
            if importlib.util.find_spec("hapax_fast") is None:
                raise MissingError("hapax_fast is not installed. Run: make setup with a compiler")

    def start(self, job: Job) -> Child:
        env = job.sandbox.environment() | {
            "HAPAX_APP": job.pipeline,
            "HAPAX_INSTANCE": "bench-0",
            "HAPAX_INPUT__TOPICS": job.source,
            "HAPAX_OUTPUT__TOPIC": job.target,
            "HAPAX_TELEMETRY__PORT": "0",
            "HAPAX_STOP_AFTER__AT_END": str(job.at_end).lower(),
            "HAPAX_GUARANTEE": self.guarantee,
            "HAPAX_TRANSACTION__INTERVAL": f"{self.interval_ms}ms",
        }
        if not self.claims:
            del env["HAPAX_DEDUP__REDIS_URL"]
        if self.transform:
            env["HAPAX_TRANSFORM"] = self.transform
        if self.native is not None:
            env |= native_environment(native=self.native)
        if self.counted:
            changelog(job.sandbox, job.pipeline)
            env["HAPAX_STATE__DIR"] = str(job.log.with_suffix(".state"))
        env |= dict(self.more)
        return Child([*self.command, "run"], env, job.log)


def changelog(sandbox: Sandbox, pipeline: str) -> str:
    """Create the topic of a pipeline's state; return its name."""
    name = f"{pipeline}-state"
    sandbox.create_topic(name, traffic.PARTITIONS, {"cleanup.policy": "compact"})
    return name


def native_environment(*, native: bool) -> dict[str, str]:
    """Return the variable that turns the native record path on or off, where there is one."""
    return {"HAPAX_FAST": "on" if native else "off"} if _has_native_setting() else {}


def _has_native_setting() -> bool:
    return any(variable.name == "HAPAX_FAST" for variable in VARIABLES)


def _forms(native: bool) -> tuple[Service, ...]:  # noqa: FBT001 - one table for both values
    path = "native" if native else "Python path"
    return tuple(
        Service(
            name=f"Hapax, {path}{', claims' * claims}{', function' * bool(transform)}",
            native=native,
            claims=claims,
            transform=transform,
        )
        for claims in (False, True)
        for transform in (None, FUNCTION)
    )


NATIVE, PYTHON = _forms(native=True), _forms(native=False)
_COUNT = "bench.keeping:count"
COUNTING = Service(name="Hapax, count per key", native=True, transform=_COUNT, counted=True)
ON_SPARK = Service(
    name="Hapax on Spark, claims",
    claims=True,
    warms=True,
    more=(("HAPAX_ENGINE", "spark"), ("HAPAX_SPARK__MASTER", "local[2]")),
)
_WORDS: dict[Guarantee, str] = {"at_least_once": "at least once", "at_most_once": "at most once"}
WEAKER = tuple(
    Service(name=f"Hapax, {path}, {words}", native=native, guarantee=guarantee, transform=FUNCTION)
    for native, path in ((True, "native"), (False, "Python path"))
    for guarantee, words in _WORDS.items()
)
