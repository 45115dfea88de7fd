"""Where a client's keys land, how its records are acknowledged, what of their fields survives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hapax.cluster import cluster_state as samples
from hapax.sandbox import SandboxTopic
from tests.kit.topics import read_back
from tests.world.programs import ask, text
from tests.world.wire import Relay

if TYPE_CHECKING:
    from hapax.sandbox import Sandbox
    from tests.world.installed import Command

PARTITIONS = 12
KEYS = [f"order-{number}".encode() for number in range(1001)]
TIMES = (-5000, -1, 0, 1, 1_700_000_000_000)
"""Milliseconds: what a client is given, against what the broker stores."""

NAMES = {"murmur2": "Java", "crc32": "CRC32", "fnv1a": "FNV-1a"}
HASHES = {name: samples.HASHES[known] for known, name in NAMES.items()}
"""Of keys, as the doctor takes them; its unit tests hold them against the clients' own values."""


def written(sandbox: Sandbox, command: Command, topic: str, variant: str = "") -> dict[str, str]:
    """Return question → answer of a writer with its defaults, or a variant of its settings."""
    suffix = f", {variant}" if variant else ""
    sandbox.create_topics(SandboxTopic(topic, PARTITIONS), SandboxTopic(f"{topic}-times", 1))
    given = [{"k": text(key), "v": text(key)} for key in KEYS]
    with Relay(sandbox) as relay:
        asked = {"bootstrap": relay.bootstrap, "topic": topic, "variant": variant}
        answer = ask(command, "write", asked, given)
        wire = sorted({str(one) for one in relay.produced})
    failure = f"error: {answer.failure}" if answer.failure else ""
    answers = {
        f"keys{suffix}": failure or _keys(sandbox, topic),
        f"wire{suffix}": failure or " and ".join(wire),
    }
    if not variant:
        answers["times"] = _times(sandbox, command, f"{topic}-times")
    return answers


def _keys(sandbox: Sandbox, topic: str) -> str:
    found = read_back(sandbox.bootstrap_servers, topic)
    keys = {record.key: record.partition for record in found if record.key is not None}
    words = [f"{len(found)} records"] if len(found) != len(KEYS) else []
    words += ["no keys"] if not keys else []
    if len(set(keys.values())) == 1:
        return ", ".join([*words, "all in one partition"])
    for name, of in HASHES.items():
        count = sum(of(key) % PARTITIONS == partition for key, partition in keys.items())
        if name == "Java" or count == len(KEYS):
            words.append(f"{count} of {len(KEYS)} as {name}")
    return ", ".join(words)


def _times(sandbox: Sandbox, command: Command, topic: str) -> str:
    """Return what became of each time that was given: "0 is 0", or that it is the clock's."""
    words = []
    for number, time in enumerate(TIMES):
        given: list[dict[str, Any]] = [{"v": text(b"t-%d" % number), "t": time}]
        asked = {"bootstrap": sandbox.bootstrap_servers, "topic": topic, "variant": ""}
        answer = ask(command, "write", asked, given)
        found = {
            record.value: record.timestamp_ms
            for record in read_back(sandbox.bootstrap_servers, topic)
        }
        stored = found.get(b"t-%d" % number)
        words.append(f"{time} {_stored(time, stored, answer.failure or answer.refused)}")
    return ", ".join(words)


def _stored(given: int, stored: int | None, refused: object) -> str:
    if stored is None:
        return "refused" if refused else "lost"
    if stored == given:
        return "kept"
    return "is the clock" if stored > max(TIMES) else f"is {stored}"
