"""Let each client read, write and measure beside exactly-once topics; compare with the record.

Goes on where a run was cut. Exits with 1 where a row is not as docs/world/run.json has it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hapax.sandbox import Sandbox
from hapax.sandbox.jars import chosen
from tests.world import (
    events,
    handing,
    installed,
    measuring,
    programs,
    reading,
    registries,
    rounds,
    tables,
    topics,
    writing,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.world.installed import Command
    from tests.world.programs import Client
    from tests.world.rounds import Rows

KAFKA = "4.4"
"""The broker of the record: the newest line of Kafka that the sandbox has."""


def main() -> int:
    """Play what is wanted; 0: all rows are as they were recorded."""
    wanted = _arguments()
    kafka = chosen(wanted.kafka or KAFKA)
    every = programs.clients()
    names = wanted.only or [client.name for client in every]
    unknown = set(names) - {client.name for client in every}
    if unknown:
        sys.exit(f"clients.toml has no {', '.join(sorted(unknown))}")
    rows, missing = ({}, {}) if wanted.only else rounds.progress(kafka)
    left = [client for client in every if client.name in names and client.name not in rows]
    ready = _install(left, missing)
    _play(ready, kafka, rows, missing, is_whole=not wanted.only)
    return _judge(wanted, kafka, {name: rows[name] for name in rows if name in names}, missing)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="these clients, played before or not")
    parser.add_argument("--kafka", help="another version of the broker; compared, not recorded")
    parser.add_argument("--accept", action="store_true", help="record rows that have changed")
    return parser.parse_args()


def _install(
    clients: Sequence[Client], missing: dict[str, str]
) -> dict[str, tuple[Client, Command]]:
    ready = {}
    for client in clients:
        began = time.monotonic()
        try:
            ready[client.name] = (client, installed.ready(client))
            missing.pop(client.name, None)
            took = time.monotonic() - began
            if took > 1:
                _say(f"{client.name} {client.version}: installed in {took:.0f} s")
        except installed.MissingError as error:
            missing[client.name] = str(error)
            _say(f"{client.name} {client.version}: cannot be had: {error}")
    return ready


def _play(
    ready: dict[str, tuple[Client, Command]],
    kafka: str,
    rows: Rows,
    missing: dict[str, str],
    *,
    is_whole: bool,
) -> None:
    if not ready:
        return
    asked = {answer for client, _ in ready.values() for answer in client.answers}
    needs_topics = bool(asked - {"serdes", "events"})
    with (
        Sandbox(
            proxied=True, properties=topics.BROKER, kafka=kafka, registry="serdes" in asked
        ) as sandbox,
        tempfile.TemporaryDirectory() as folder,
        ExitStack() as more,
        ThreadPoolExecutor(1) as aside,
    ):
        made = more.enter_context(topics.made(sandbox, Path(folder))) if needs_topics else {}
        for number, (client, command) in enumerate(ready.values()):
            began = time.monotonic()
            hands = "lag" in client.answers and aside.submit(
                handing.handed, sandbox, Path(folder), command
            )
            rows[client.name] = _answers(sandbox, made, client, command)
            rows[client.name] |= hands.result() if hands else {}
            took = time.monotonic() - began
            _say(f"{number + 1} of {len(ready)}: {client.name} {client.version}: {took:.0f} s")
            if is_whole:
                rounds.keep_progress(kafka, rows, missing)


def _answers(
    sandbox: Sandbox, made: dict[str, str], client: Client, command: Command
) -> dict[str, str]:
    unique = f"{client.name}-{uuid.uuid4().hex[:6]}"
    brokers = sandbox.bootstrap_servers
    found: dict[str, str] = {}
    if "readers" in client.answers:
        found |= reading.delivered(brokers, made, command)
    if "lag" in client.answers:
        found |= reading.lags(brokers, made, command, unique)
    if "writers" in client.answers:
        for variant in ("", *client.words.get("variants", "").split()):
            topic = f"{unique}-{variant or 'default'}"
            found |= writing.written(sandbox, command, topic, variant)
    if "serdes" in client.answers:
        found |= registries.exchanged(sandbox.registry.url, client, command)
    if "events" in client.answers:
        found |= events.written(command)
    if "tools" in client.answers:
        found |= measuring.measured(brokers, made, command, unique)
    return found


def _judge(wanted: argparse.Namespace, kafka: str, rows: Rows, missing: dict[str, str]) -> int:
    versions = {client.name: client.version for client in programs.clients()}
    changed = rounds.changes(rows, versions)
    for change in changed:
        _say(f"changed: {change}")
    for name, reason in missing.items():
        _say(f"not played: {name}: {reason}")
    is_recorded = wanted.kafka is None and (wanted.accept or not changed)
    if is_recorded:
        rounds.keep(_run(kafka), rows, versions, missing)
        tables.write()
    if not wanted.only:
        rounds.forget_progress()
    _say(f"make world: {len(rows)} clients on Kafka {kafka}, {len(changed)} rows changed")
    return 1 if changed and not wanted.accept else 0


def _run(kafka: str) -> dict[str, str]:
    words = ("git", "rev-parse", "--short=8", "HEAD")
    commit = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    return {"kafka": kafka, "commit": commit, "date": datetime.now(UTC).date().isoformat()}


def _say(sentence: str) -> None:
    print(sentence, flush=True)


if __name__ == "__main__":
    sys.exit(main())
