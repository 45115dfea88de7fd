from __future__ import annotations

import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.managed_process import ManagedProcess
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.proof import rounds
from tests.kit.topics import read_back
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hapax.sandbox import Sandbox

HAPAX = (sys.executable, "-m", "hapax")


@pytest.fixture
def route(sandbox: Sandbox, tmp_path: Path) -> Iterator[PipelineUnderTest]:
    made = PipelineUnderTest(sandbox, tmp_path)
    made.create()
    yield made
    made.close()


class Growing(threading.Thread):
    """Writes numbered lines into a file, in pieces that end anywhere; renames it now and then."""

    def __init__(self, path: Path, *, rotate_every: int = 0) -> None:
        super().__init__()
        self._path = path
        self._rotate_every = rotate_every
        self._ending = threading.Event()
        self.lines: list[bytes] = []
        self.rotations = 0
        path.touch()

    def run(self) -> None:
        file = self._path.open("ab", buffering=0)
        while not self._ending.is_set():
            number = len(self.lines)
            if self._rotate_every and number % self._rotate_every == self._rotate_every - 1:
                self.rotations += 1
                self._path.rename(self._path.with_name(f"{self._path.name}.{self.rotations}"))
                file.close()
                file = self._path.open("ab", buffering=0)
            line = b"%d " % number + b"x" * (number % 90) + b"\n"
            cut = number % len(line)
            file.write(line[:cut])
            self._ending.wait(0.001)
            file.write(line[cut:])
            self.lines.append(line.rstrip(b"\n"))
        file.close()

    def end(self) -> None:
        self._ending.set()
        self.join()


def publishing(route: PipelineUnderTest, folder: Path, *words: str) -> ManagedProcess:
    command = [*HAPAX, "publish", *words, "--topic", route.source]
    return ManagedProcess(command, folder / "publish.log", route.environment())


def said(receipts: Path) -> list[dict[str, Any]]:
    """Return what was written down; the last line of a process that was killed may be torn."""
    text = receipts.read_text() if receipts.exists() else ""
    return [json.loads(each) for each in text.splitlines() if each.endswith("}")]


def await_written(receipts: Path, count: int, process: ManagedProcess) -> None:
    """Wait until so many receipts are written; fail at once when the process has ended."""
    await_(lambda: not process.running or len(said(receipts)) >= count, 60, process.text)
    assert process.running, process.text()


def values(route: PipelineUnderTest) -> list[bytes | None]:
    return [record.value for record in read_back(route.bootstrap, route.source)]


@pytest.mark.rounds
def test_a_file_that_grows_and_is_rotated_is_published_once_whenever_the_process_is_killed(
    route: PipelineUnderTest, tmp_path: Path
) -> None:
    log, receipts = tmp_path / "app.log", tmp_path / "receipts"
    words = [str(log), "--spool", str(tmp_path / "spool"), "--follow", "--receipts", str(receipts)]
    process = publishing(route, tmp_path, *words)
    writer = Growing(log, rotate_every=1_500)
    writer.start()
    kills = rounds(4, 60)
    try:
        for kill in range(kills):
            receipts.unlink(missing_ok=True)
            process.start()
            await_written(receipts, 2 + 7 * (kill % 5), process)
            process.kill()
    except BaseException:
        process.close()
        raise
    finally:
        writer.end()
    process.start()
    await_(lambda: len(values(route)) >= len(writer.lines), 60, process.text)
    assert process.terminate() == 0, process.text()
    assert values(route) == writer.lines
    assert "SIGTERM" in process.text().splitlines()[-1]
    assert (writer.rotations > 0, process.text().count("Traceback")) == (True, 0)


def test_control_without_a_spool_a_process_that_is_killed_and_started_again_doubles_lines(
    route: PipelineUnderTest, tmp_path: Path
) -> None:
    log, lines = tmp_path / "app.log", [b"%d\n" % number for number in range(1000)]
    log.write_bytes(b"".join(lines))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # the first process sees but a half of it, for certain
    process = publishing(route, tmp_path, str(pipe))
    process.start()
    with pipe.open("wb") as half:
        half.write(b"".join(lines[:500]))
        half.flush()
        await_(lambda: len(values(route)) > 0, 60, process.text)
        process.kill()
    process.start([*HAPAX, "publish", str(log), "--topic", route.source])
    process.finish(60)
    assert len(lines) < len(values(route)) <= len(lines) + 500
