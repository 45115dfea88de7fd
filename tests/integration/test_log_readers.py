"""Nobody reads the log, or not any more: the work goes on, and a stop is a stop."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.kit.managed_process import HANG_S, SERVICE
from tests.kit.pipeline_under_test import metric
from tests.kit.probes import free_port
from tests.kit.routes import a_route

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.pipeline_under_test import PipelineUnderTest

SMALL = 4096
RECORDS = [b"%d" % number for number in range(200)]

route = a_route(TRANSACTION__RECORDS_MAX="1", TELEMETRY__LOG_LEVEL="debug")


class Piped:
    """A worker whose output goes into a small pipe, which is read for as long as wanted."""

    def __init__(self, route: PipelineUnderTest, *, errors_too: bool) -> None:
        self.port = free_port()
        self.reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, SMALL)
        self.process = subprocess.Popen(
            SERVICE,
            env=route.environment(INSTANCE="w-0", TELEMETRY__PORT=str(self.port)),
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=writer if errors_too else subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(writer)

    def read_until(self, word: bytes) -> None:
        found = b""
        while word not in found:
            more = os.read(self.reader, SMALL)
            assert more, found
            found = found[-len(word) :] + more

    def dropped(self) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as page:
            return metric(page.read().decode(), "hapax_log_lines_dropped_total")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(HANG_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        with suppress(OSError):  # the test has closed it
            os.close(self.reader)


@pytest.fixture(params=[False, True], ids=["stdout", "with stderr"])
def piped(route, request) -> Iterator[Piped]:
    worker = Piped(route, errors_too=request.param)
    worker.read_until(b"service_ready")
    yield worker
    worker.close()


def test_a_reader_that_goes_away_ends_nothing_and_a_stop_leaves_with_0(route, piped):
    os.close(piped.reader)
    route.write(*RECORDS)
    route.await_lag_0()
    assert piped.dropped() > 0
    assert piped.stop() == 0
    assert len(route.outputs()) == len(RECORDS)


def test_a_full_pipe_holds_nothing_and_a_stop_leaves_with_0(route, piped):
    route.write(*RECORDS)
    route.await_lag_0()
    assert piped.stop() == 0
    assert len(route.outputs()) == len(RECORDS)


def test_without_any_standard_stream_it_works_and_stops(route):
    environment = route.environment(INSTANCE="w-0")
    words = " ".join(("exec", *SERVICE, "<&-", ">&-", "2>&-"))
    route.write(*RECORDS)
    process = subprocess.Popen(["/bin/sh", "-c", words], env=environment, start_new_session=True)
    route.await_lag_0()
    process.terminate()
    assert process.wait(HANG_S) == 0
    assert len(route.outputs()) == len(RECORDS)
