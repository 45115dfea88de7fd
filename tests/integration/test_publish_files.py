import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.kit.managed_process import ManagedProcess
from tests.kit.night import Desk
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.proof import rounds
from tests.kit.routes import a_route
from tests.kit.topics import read_back
from tests.kit.waiting import await_

HAPAX = (sys.executable, "-m", "hapax")

route = a_route()


class Growing(threading.Thread):
    """Writes numbered lines into a file, in pieces that end anywhere; renames it when asked."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._rotating = threading.Event()
        self._ending = threading.Event()
        self.lines: list[bytes] = []
        self.rotations = 0
        path.touch()

    def run(self) -> None:
        file = self._path.open("ab", buffering=0)
        while not self._ending.is_set():
            number = len(self.lines)
            if self._rotating.is_set():
                self._path.rename(self._path.with_name(f"{self._path.name}.{self.rotations + 1}"))
                file.close()
                file = self._path.open("ab", buffering=0)
                self._rotating.clear()
                self.rotations += 1
            line = b"%d " % number + b"x" * (number % 90) + b"\n"
            cut = number % len(line)
            file.write(line[:cut])
            self._ending.wait(0.001)
            file.write(line[cut:])
            self.lines.append(line.rstrip(b"\n"))
        file.close()

    def rotate(self) -> None:
        """Rename the file between two lines and open a new one; return when it is done."""
        before = self.rotations
        self._rotating.set()
        await_(lambda: self.rotations > before, 30)

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
@pytest.mark.timeout(900)
def test_a_file_that_grows_and_is_rotated_is_published_once_whenever_the_process_is_killed(
    route, tmp_path
):
    log, receipts = tmp_path / "app.log", tmp_path / "receipts"
    words = [str(log), "--spool", str(tmp_path / "spool"), "--follow", "--receipts", str(receipts)]
    process = publishing(route, tmp_path, *words)
    writer = Growing(log)
    writer.start()
    kills = rounds(3, 40)
    try:
        for kill in range(kills):
            receipts.unlink(missing_ok=True)
            process.start()
            await_written(receipts, 2 + 7 * (kill % 5), process)
            if kill % 2 == 0:
                writer.rotate()  # the process may or may not have seen it when it dies
            process.kill()
            if kill % 3 == 0:
                writer.rotate()
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
    assert (writer.rotations >= kills // 2, process.text().count("Traceback")) == (True, 0)


def test_control_without_a_spool_a_process_that_is_killed_and_started_again_doubles_lines(
    route, tmp_path
):
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


def test_a_csv_file_ends_when_all_of_it_is_in_kafka_and_what_it_gets_later_is_added(
    route, tmp_path
):
    orders = tmp_path / "orders.csv"
    orders.write_bytes(b'id,say\n1,"a\nb"\n2,c\n')
    words = ["publish", str(orders), "--format", "csv", "--key-pointer", "/id"]
    words += ["--spool", str(tmp_path / "spool"), "--topic", route.source]
    desk = Desk(route)
    assert desk.ask(*words) == {
        "topic": route.source,
        "accepted": 2,
        "skipped": 0,
        "waiting": 0,
        "stopped": "",
    }
    assert desk.ask(*words)["accepted"] == 0
    with orders.open("ab") as file:
        file.write(b"3,d\n")
    assert desk.ask(*words)["accepted"] == 1
    found = read_back(route.bootstrap, route.source)
    assert [json.loads(record.value or b"")["say"] for record in found] == ["a\nb", "c", "d"]
    assert [record.key for record in found] == [b"1", b"2", b"3"]
    ids = [(dict(record.headers)["message-id"] or b"").decode() for record in found]
    assert [each.rpartition("/")[2] for each in ids] == ["1", "2", "3"]


def test_lines_of_a_pipe_are_safe_once_they_are_accepted_and_receipts_say_so(route, tmp_path):
    spool = str(tmp_path / "spool")
    command = [*HAPAX, "publish", "--topic", route.source, "--spool", spool, "--receipts", "-"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=route.environment(), text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin as lines, process.stdout as out:
        lines.write("a\nb\nhalf a line")
        lines.flush()
        receipts = [json.loads(out.readline()) for _line in range(3)]
        process.kill()
        process.wait()
    assert receipts[0] == {"event": "accepted", "line": 2, "sequence": 2}
    assert [(each["line"], each["offset"]) for each in receipts[1:]] == [(1, 0), (2, 1)]
    done = subprocess.run(command, input=b"c\n", env=route.environment(), check=True, timeout=60)
    assert done.returncode == 0
    assert values(route) == [b"a", b"b", b"c"]


def test_what_is_not_in_kafka_at_a_signal_stays_on_disk_and_is_published_by_the_next_start(
    route, tmp_path
):
    log = tmp_path / "app.log"
    log.write_bytes(b"a\nb\n")
    process = publishing(
        route, tmp_path, str(log), "--spool", str(tmp_path / "spool"), "--follow", "--json"
    )
    away = {"HAPAX_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "HAPAX_SHUTDOWN__TIMEOUT": "1s"}
    process.start(settings=away)
    await_(lambda: "accepted 2, waiting 2" in process.text(), 60, process.text)
    assert process.terminate() == 0
    told = json.loads(process.text()[process.text().rindex("{\n") :])
    assert (told["accepted"], told["waiting"], told["stopped"]) == (2, 2, "SIGTERM")
    process.start()
    await_(lambda: len(values(route)) == 2, 60, process.text)
    assert process.terminate() == 0


def test_a_spool_has_one_owner_and_one_file(route, tmp_path):
    log, receipts = tmp_path / "app.log", tmp_path / "receipts"
    log.write_bytes(b"a\n")
    spool = ["--spool", str(tmp_path / "spool")]
    process = publishing(route, tmp_path, str(log), *spool, "--follow", "--receipts", str(receipts))
    process.start()
    await_written(receipts, 2, process)
    desk = Desk(route)
    words = ["publish", "--topic", route.source, *spool]
    second = desk.type(*words, str(log))
    assert (second.exit_code, str(process.process.pid) in second.stderr) == (4, True)
    assert process.terminate() == 0
    other = tmp_path / "other.log"
    other.write_bytes(b"b\n")
    refused = desk.type(*words, str(other))
    assert (refused.exit_code, "needs a --spool of its own" in refused.stderr) == (2, True)
    log.write_bytes(b"")
    gap = desk.type(*words, str(log))
    assert (gap.exit_code, "--on-gap restart" in gap.stderr) == (6, True)
    moved = tmp_path / "spool"
    shutil.copytree(moved, tmp_path / "copy")
    copied = desk.type(*words[:-1], str(tmp_path / "copy"), str(log))
    assert (copied.exit_code, "was copied, moved or restored" in copied.stderr) == (2, True)
    assert values(route) == [b"a"]
