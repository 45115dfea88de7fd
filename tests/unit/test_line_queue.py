"""Lines on their way out: whoever reads them, slowly or not at all, holds up and ends nothing."""

import os
import signal
import threading
from contextlib import suppress

import pytest

from hapax.telemetry.line_queue import LineQueue, write_within
from tests.kit.waiting import await_

LONG = b"x" * 1000
WITHIN_S = 20.0


class Pipe:
    """A pipe, the queue that writes to it, and what the queue has told."""

    def __init__(self, bytes_max: int = 100_000) -> None:
        self.reader, writer = os.pipe()
        self.lines = LineQueue(writer, bytes_max)
        os.close(writer)
        self.drops = 0
        self.resumes: list[int] = []
        self.lines.on_drop = self._dropped
        self.lines.on_resume = lambda: self.resumes.append(self.drops)

    def read(self, until: bytes) -> bytes:
        found = b""
        while until not in found:
            found += os.read(self.reader, 1 << 16)
        return found

    def _dropped(self) -> None:
        self.drops += 1


@pytest.fixture
def pipe():
    made = Pipe()
    yield made
    with suppress(OSError):  # the test has closed it
        os.close(made.reader)


def test_lines_come_out_whole_and_in_order(pipe):
    for number in range(1000):
        pipe.lines.add(b"%d" % number)
    pipe.lines.flush(WITHIN_S)
    assert pipe.read(b"999\n") == b"".join(b"%d\n" % number for number in range(1000))
    assert pipe.drops == 0


def test_whoever_adds_a_line_does_not_write_it(pipe, monkeypatch):
    write, writers = os.write, set()

    def noted(descriptor: int, data: bytes) -> int:
        if data == b"one\n":
            writers.add(threading.get_ident())
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", noted)
    pipe.lines.add(b"one")
    assert pipe.read(b"one\n") == b"one\n"
    assert len(writers - {threading.get_ident()}) == 1


def test_a_full_pipe_costs_lines_and_no_time_and_the_next_reader_is_told(pipe):
    for _ in range(2000):
        pipe.lines.add(LONG)
    assert pipe.drops > 1500  # what neither the pipe nor the queue holds
    last = threading.Thread(target=lambda: pipe.read(b"last"), daemon=True)
    last.start()
    await_(lambda: pipe.resumes[-1:] == [pipe.drops], WITHIN_S, str)
    pipe.lines.flush(WITHIN_S)
    pipe.lines.add(b"last")
    last.join(WITHIN_S)
    assert not last.is_alive()


def test_a_reader_that_goes_away_costs_lines_only(pipe):
    os.close(pipe.reader)
    for number in range(10):
        pipe.lines.add(b"%d" % number)
    pipe.lines.flush(WITHIN_S)
    await_(lambda: pipe.drops == 10, WITHIN_S, lambda: f"{pipe.drops} drops")
    assert pipe.resumes == []


def test_a_pipe_that_does_not_block_is_waited_for():
    pipe = Pipe(bytes_max=1 << 20)
    os.set_blocking(pipe.lines._descriptor, False)
    for _ in range(500):
        pipe.lines.add(LONG)
    pipe.lines.add(b"last")
    assert pipe.read(b"last\n").count(b"\n") == 501
    assert pipe.drops == 0


def test_a_number_that_business_code_closes_is_not_ours():
    reader, writer = os.pipe()
    lines = LineQueue(writer)
    os.close(writer)
    lines.add("text \ud800")
    assert os.read(reader, 100) == b"text \\ud800\n"


def test_a_flush_ends_in_its_time_though_nobody_reads(pipe):
    pipe.lines.add(b"x" * (1 << 20))
    pipe.lines.flush(0.01)
    write_within(threading.Event().wait, 0.01)


def test_a_forked_process_writes_its_lines(pipe):
    pipe.lines.flush(WITHIN_S)
    child = os.fork()
    if not child:
        signal.alarm(int(WITHIN_S))
        pipe.lines.add(b"child")
        pipe.lines.flush(WITHIN_S)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert pipe.read(b"child\n") == b"child\n"
