"""A group that is handed to Hapax and taken back: which records are read twice or by neither."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import ConsumerGroupState

from tests.kit.kept_clients import administrator
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.topics import Given, produce
from tests.kit.waiting import await_
from tests.world.programs import Answer, ask

if TYPE_CHECKING:
    from pathlib import Path

    from hapax.sandbox import Sandbox
    from tests.world.installed import Command

PARTITIONS = 4
OLD, NEW, LATER = 150, 100, 50
IDLE_S = 3
LEFT_S = 60.0


def handed(sandbox: Sandbox, folder: Path, command: Command) -> dict[str, str]:
    """Return question → answer.

    The client reads 150 records, all in two of four partitions, so that the others have no offset
    of it; Hapax runs under its group and is to read just the next 100, in all four; the client
    comes back and is to read just the last 50.
    """
    pipeline = PipelineUnderTest(sandbox, folder, partitions=PARTITIONS, INPUT__START="earliest")
    pipeline.create()
    group, topic = pipeline.app, pipeline.source
    produce(sandbox.bootstrap_servers, topic, *_numbered(0, OLD, over=2))
    asked = {"bootstrap": sandbox.bootstrap_servers, "topic": topic, "group": group}
    before = ask(command, "group", asked | {"idle_s": IDLE_S})
    _await_left(sandbox, group)
    produce(sandbox.bootstrap_servers, topic, *_numbered(OLD, NEW, over=PARTITIONS))
    worker = pipeline.worker(STOP_AFTER__AT_END="true")
    code = worker.exit_code()
    between = [record.value for record in pipeline.outputs()]
    pipeline.close()
    _await_left(sandbox, group)
    produce(sandbox.bootstrap_servers, topic, *_numbered(OLD + NEW, LATER, over=PARTITIONS))
    after = ask(command, "group", asked | {"idle_s": IDLE_S})
    taken = _compared(between, OLD, NEW) if code == 0 else f"exit {code}"
    return {
        "group, before Hapax": _of(before, 0, OLD),
        "group, Hapax": taken,
        "group, taken back": _of(after, OLD + NEW, LATER),
    }


def _numbered(first: int, count: int, *, over: int) -> list[Given]:
    return [
        Given(b"c-%05d" % number, b"%d" % number, (), number % over)
        for number in range(first, first + count)
    ]


def _of(answer: Answer, first: int, count: int) -> str:
    if answer.failure:
        return f"error: {answer.failure}"
    return _compared([record.value for record in answer.records], first, count)


def _compared(values: list[bytes | None], first: int, count: int) -> str:
    """Return "all 100", or how many of them are missing, twice, or of another part."""
    wanted = {b"c-%05d" % number for number in range(first, first + count)}
    found = set(values)
    differences = {
        "missing": len(wanted - found),
        "twice": len(values) - len(found),
        "read before or after": len(found - wanted),
    }
    words = [f"{number} {what}" for what, number in differences.items() if number]
    return ", ".join(words) or f"all {count}"


def _await_left(sandbox: Sandbox, group: str) -> None:
    """A member that left without a word is in the group until its session times out."""

    def is_empty() -> bool:
        with administrator(sandbox.bootstrap_servers) as admin:
            found = admin.describe_consumer_groups([group])[group].result()
        return bool(found.state in {ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD})

    await_(is_empty, LEFT_S)
