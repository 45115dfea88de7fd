"""Environments of the peers: each apart, made from locks, under build/peers and build/bench.

A peer that cannot be made here raises ``MissingError`` with the reason: the bench says so and
measures the others.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sysconfig
from functools import cache
from pathlib import Path

from bench.peers.environment import environment
from hapax.jars import Lock
from hapax.sandbox import SandboxError, jars, machine
from hapax.sandbox.machine import say

_PEERS = Path(__file__).parent
_BUILD = _PEERS.parents[1] / "build/bench"
_MAKE_TIMEOUT_S = 600.0
_STREAMS_LOCK = _PEERS / "streams/jars.lock"
_STREAMS_JAR = "org.apache.kafka:kafka-streams:"
STREAMS_VERSION = next(
    line.removeprefix(_STREAMS_JAR).split()[0]
    for line in _STREAMS_LOCK.read_text("utf-8").splitlines()
    if line.startswith(_STREAMS_JAR)
)
STREAMS = Lock(
    title=f"Kafka Streams {STREAMS_VERSION}",
    stem=f"kafka-streams-{STREAMS_VERSION}",
    path=_STREAMS_LOCK,
    size="96 MB",
)


class MissingError(Exception):
    """This peer cannot be measured here; the message says why."""


@cache
def python_of(peer: str) -> Path:
    """Return the interpreter of a virtual environment with what the peer's lock names."""
    say(f"The environment of {peer} is made where it is missing")
    try:
        return environment(peer)
    except subprocess.SubprocessError as error:
        raise MissingError(f"the libraries of {peer} cannot be installed") from error


def program(peer: str) -> Path:
    """Return the program of a peer that is written in Python."""
    return _PEERS / peer / "copier.py"


@cache
def copier_in_c() -> tuple[Path, Path]:
    """Return the compiled program, and the librdkafka that the binding has brought."""
    source = _PEERS / "librdkafka/copier.c"
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise MissingError("there is no C compiler. Run: sudo apt-get install gcc")
    spec = importlib.util.find_spec("confluent_kafka")
    assert spec is not None
    assert spec.origin is not None
    bundled = sorted(Path(spec.origin).parents[1].glob("confluent_kafka.libs/librdkafka-*.so*"))
    if not bundled:
        raise MissingError("this confluent-kafka brings no librdkafka of its own")
    program = _folder("librdkafka", source) / "copier"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        _run("librdkafka", [compiler, "-O2", "-o", str(program), str(source), "-ldl"])
    return program, bundled[0]


@cache
def streams_class_path() -> str:
    """Return the class path of the compiled program and of locked jars."""
    source = _PEERS / "streams/Copier.java"
    compiler = shutil.which("javac")
    if compiler is None:
        raise MissingError(
            "there is no Java compiler. Run: sudo apt-get install openjdk-17-jdk-headless"
        )
    try:
        folder = jars.fetched(STREAMS)
        machine.java()
    except SandboxError as error:
        raise MissingError(str(error).splitlines()[0]) from error
    classes = _folder("streams", source)
    if not (classes / "Copier.class").exists():
        classes.mkdir(parents=True, exist_ok=True)
        command = [compiler, "-d", str(classes), "-cp", f"{folder}/*", str(source)]
        _run("streams", command)
    return f"{classes}:{folder}/*"


def versions() -> dict[str, str]:
    """Return name and version of the peers whose locks say so."""
    found = {"Kafka Streams": STREAMS_VERSION}
    for library in ("quixstreams", "aiokafka"):
        for line in (_PEERS / library / "requirements.txt").read_text("utf-8").splitlines():
            if line.startswith(f"{library}=="):
                found[library] = line.removeprefix(f"{library}==").split()[0]
    return found


def _folder(peer: str, source: Path) -> Path:
    """Return a folder for this peer: another lock or program means another one."""
    content = source.read_bytes() + (sysconfig.get_config_var("SOABI") or "").encode()
    return _BUILD / f"{peer}-{hashlib.sha256(content).hexdigest()[:12]}"


def _run(peer: str, command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_MAKE_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"its environment took more than {_MAKE_TIMEOUT_S:.0f} s") from error
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise MissingError(f"the environment of {peer} cannot be made: {last[0]}")
