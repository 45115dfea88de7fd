"""``hapax init`` and ``hapax dev``: a project of one's own, on a real Kafka, from one terminal."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped] # psutil has no types
import pytest

from hapax.dev import create_project
from hapax.dev.session import FileChanges
from hapax.sandbox.processes import Ports
from tests.kit.commands import run_captured
from tests.kit.waiting import await_

WITHIN_S = 90
HAPAX = (sys.executable, "-m", "hapax")


@pytest.fixture
def project(tmp_path):
    create_project("orders", tmp_path)
    return tmp_path / "orders"


@pytest.fixture
def environ():
    """The environment, which counts more than settings.env: ports that are free here."""
    with closing(Ports()) as ports:
        kafka, store, page = (ports.reserve() for _ in range(3))
    return os.environ | {
        "HAPAX_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{kafka}",
        "HAPAX_DEDUP__REDIS_URL": f"redis://127.0.0.1:{store}/0",
        "HAPAX_TELEMETRY__PORT": str(page),
    }


class Dev:
    """A ``hapax dev`` that runs, and what it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.printed: list[str] = []
        self.said: list[str] = []
        for stream, lines in ((process.stdout, self.printed), (process.stderr, self.said)):
            threading.Thread(
                target=lambda s=stream, kept=lines: kept.extend(s), daemon=True
            ).start()

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def await_printed(self, text: str) -> None:
        await_(lambda: any(text in line for line in self.printed), WITHIN_S, self._all)

    def await_said(self, text: str, times: int = 1) -> None:
        await_(lambda: sum(text in line for line in self.said) >= times, WITHIN_S, self._all)

    def _all(self) -> str:
        return "".join([*self.printed, *self.said])


@contextmanager
def running(project: Path, environ: dict[str, str]) -> Iterator[Dev]:
    with subprocess.Popen(
        [*HAPAX, "dev"],
        cwd=project,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        try:
            yield Dev(process)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(WITHIN_S)


def test_what_is_piped_in_is_processed_and_what_came_out_is_printed(project, environ):
    with (project / "events.jsonl").open() as events:
        done = run_captured(
            [*HAPAX, "dev", "--once"], cwd=project, env=environ, stdin=events, timeout=WITHIN_S
        )
    assert done.returncode == 0, done.stderr
    lines = [line.split("  ") for line in done.stdout.splitlines()]
    assert sorted((line[0].split("/")[0], line[2]) for line in lines) == [
        ("orders-dead", '{"id": "a-3"}'),
        ("orders-out", '{"id":"a-1","lines":[{"price":250,"count":2}],"total":500}'),
        ("orders-out", '{"id":"a-4","lines":[{"price":99,"count":1}],"total":99}'),
    ]


def test_a_typed_line_comes_out_and_a_change_of_the_function_counts_for_the_next(project, environ):
    rule = project / "pipeline.py"
    with running(project, environ) as dev:
        dev.await_said("service_ready")
        dev.type('{"id": "b-1", "lines": [{"price": 7, "count": 3}]}')
        dev.await_printed('"total":21}')
        rule.write_text(rule.read_text().replace('"total"', '"sum"'))
        dev.await_said("pipeline.py changed: starting again")
        dev.await_said("service_ready", times=2)
        dev.type('{"id": "b-2", "lines": [{"price": 7, "count": 3}]}')
        dev.await_printed('"sum":21}')
        rule.write_text("import no_such_module\n")
        dev.await_said("the service ended with exit code 2")
    assert any("status page at http://127.0.0.1:" in line for line in dev.said)
    assert any("cannot import pipeline" in line for line in dev.said)
    assert dev.process.returncode == 0


def test_a_killed_command_leaves_no_process_behind(project, environ):
    with running(project, environ) as dev:
        dev.await_said("service_ready")
        children = psutil.Process(dev.process.pid).children(recursive=True)
        assert {"java", "redis-server"} <= {one.name() for one in children}
        assert len(children) >= 4  # the service as well, and what ends them all
        dev.process.kill()
    assert psutil.wait_procs(children, timeout=60)[1] == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HAPAX_KAFKA__BOOTSTRAP_SERVERS", "kafka.example:9092"),
        ("HAPAX_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:9092,127.0.0.1:9093"),
        ("HAPAX_DEDUP__REDIS_URL", "redis://cache.example:6379/0"),
        ("HAPAX_KAFKA__SECURITY__PROTOCOL", "ssl"),
    ],
)
def test_servers_of_other_machines_are_refused(project, variable, value):
    done = run_captured(
        [*HAPAX, "dev", "--set", f"{variable}={value}"],
        cwd=project,
        stdin=subprocess.DEVNULL,
        timeout=WITHIN_S,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"hapax: {variable}"), done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["Orders", "or_ders", "../orders", "", "-a", "a" * 63])
def test_a_name_that_is_no_topic_group_and_image_at_once_is_refused(tmp_path, name):
    done = run_captured([*HAPAX, "init", "--", name], cwd=tmp_path, timeout=WITHIN_S)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])


def test_nothing_is_written_into_a_folder_that_holds_files(tmp_path):
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders/notes.txt").write_text("mine")
    done = run_captured([*HAPAX, "init", "orders"], cwd=tmp_path)
    assert done.returncode == 2
    assert "nothing was written" in done.stderr
    assert [file.name for file in (tmp_path / "orders").iterdir()] == ["notes.txt"]


def test_written_made_and_removed_files_are_changes_and_others_are_none(tmp_path):
    for name in ("a.py", "b.py", "settings.env", ".venv/lib.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    changes = FileChanges(tmp_path)
    assert changes.look() == []
    for name in ("a.py", "settings.env", ".venv/lib.py", "notes.txt", "c.py"):
        (tmp_path / name).write_text("22")
    (tmp_path / "b.py").unlink()
    assert changes.look() == ["a.py", "b.py", "c.py", "settings.env"]
    assert changes.look() == []
