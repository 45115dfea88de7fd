"""What ``hapax dev`` runs: a sandbox on the ports of the settings, and the service in a folder."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import msgspec

from hapax.core.errors import ConfigurationError, HapaxError
from hapax.core.ports import silent
from hapax.operations.publish import Lines, publish
from hapax.operations.reading import consume
from hapax.processing.transform import load_form
from hapax.sandbox import Sandbox
from hapax.sandbox.processes import ManagedProcess
from hapax.sandbox.watchdog import ChildWatchdog
from hapax.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from hapax.core.records import Progress, Record
    from hapax.settings import Settings

LOOK_S = 0.3
"""Between two looks for files that have changed."""
STOP_MARGIN_S = 5.0
SUFFIXES = (".py", ".env")
_LEFT_OUT = {"__pycache__", "node_modules", "site-packages"}
_LOCAL = {"localhost", "127.0.0.1", "::1"}
_READABLE = {"HAPAX_TELEMETRY__LOG_FORMAT": "console"}
_AT_END = {"HAPAX_STOP_AFTER__AT_END": "true"}


class DevOptions(msgspec.Struct, frozen=True):
    """How to run.

    environ   returns the variables: files are read again after a change
    headers   of each record that is published
    topics    further topics to create, with their numbers of partitions
    data_dir  where the data of the sandbox outlive it; None: nowhere
    show      prints a record; say: a line about what happens
    key_pointer  a JSON pointer to the key in each line; empty: records have none
    """

    environ: Callable[[], dict[str, str]]
    headers: tuple[tuple[str, bytes], ...]
    topics: dict[str, int]
    partitions: int
    data_dir: Path | None
    show: Callable[[Record], None]
    say: Callable[[str], None]
    key_pointer: str = ""


class DevSession:
    """Use it as ``with DevSession(folder, options) as session``: the sandbox runs in the block."""

    def __init__(self, folder: Path, options: DevOptions) -> None:
        self.settings: Settings = load_settings(options.environ())
        self._folder = folder
        self._options = options
        self._kafka, self._redis = _ports(self.settings)
        self._ending = threading.Event()
        self._running = False

    def __enter__(self) -> Self:
        options, settings = self._options, self.settings
        options.say("starting Kafka" + (" and Redis" if self._redis else ""))
        sandbox = Sandbox(redis=bool(self._redis), data_dir=options.data_dir)
        with ExitStack() as stack:
            stack.enter_context(sandbox.listen_on(self._kafka, self._redis))
            sandbox.kafka.create_missing(self._topics())
            self._create_changelog(sandbox)
            watchdog = stack.enter_context(closing(ChildWatchdog()))
            command = [sys.executable, "-m", "hapax", "run"]
            self._service = ManagedProcess("the service", command, None, watchdog)
            self._stop_s = settings.shutdown.timeout_ms / 1000 + STOP_MARGIN_S
            stack.callback(self._service.terminate, self._stop_s)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ending.set()
        self._stack.close()

    def once(self, lines: Iterable[bytes]) -> int:
        """Publish lines, process all there is, show what came out; return the service's code."""
        self._publish(lines)
        self._start(self._options.environ() | _AT_END)
        code = self._service.wait()
        for records in consume(self.settings, self._outputs()):
            for record in records:
                self._options.show(record)
        return code

    def stay(self, lines: Iterable[bytes]) -> None:
        """Run until interrupted, publish ``lines`` as they come, and restart after a change."""
        changes, options = FileChanges(self._folder), self._options
        threading.Thread(target=self._show_outputs, daemon=True).start()
        threading.Thread(target=self._publish_each, args=[lines], daemon=True).start()
        self._start(options.environ())
        while True:
            time.sleep(LOOK_S)
            if changed := changes.look():
                options.say(f"{', '.join(changed)} changed: starting again")
                self._restart()
            code = self._service.exit_code
            if code is not None and self._running:
                self._running = False
                options.say(
                    f"the service ended with exit code {code}; it starts again when a file changes"
                )

    def _start(self, environ: dict[str, str]) -> None:
        self._service.start(_READABLE | environ)
        self._running = True

    def _restart(self) -> None:
        self._service.terminate(self._stop_s)
        self._running = False
        try:
            environ = self._options.environ()
        except ConfigurationError as error:
            for problem in error.problems:
                self._options.say(problem)
            return
        self._start(environ)

    def _topics(self) -> dict[str, int]:
        named = (*self.settings.input.topics, *self._outputs())
        return dict.fromkeys(named, self._options.partitions) | self._options.topics

    def _create_changelog(self, sandbox: Sandbox) -> None:
        name = self.settings.state_topic
        with suppress(ConfigurationError):  # the service says so, and runs when it is corrected
            stateful = load_form(self.settings.transform).stateful
            if stateful and not sandbox.kafka.has_topic(name):
                compact = {"cleanup.policy": "compact"}
                sandbox.kafka.create_topic(name, self._options.partitions, compact)

    def _outputs(self) -> list[str]:
        settings = self.settings
        named = [settings.output.topic, settings.dead_letter.topic, *self._options.topics]
        return [topic for topic in dict.fromkeys(named) if topic is not None]

    def _publish(self, lines: Iterable[bytes]) -> None:
        options = self._options
        how = Lines(
            topic=self.settings.input.topics[0],
            headers=options.headers,
            key_pointer=options.key_pointer,
        )
        publish(self.settings, how, lines, silent, transactional=False)

    def _publish_each(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            try:
                self._publish([line])
            except HapaxError as error:
                if self._ending.is_set():
                    return
                self._options.say(str(error))

    def _show_outputs(self) -> None:
        start = "beginning" if self._options.data_dir is None else "end"
        shown: Progress = {}
        while not self._ending.is_set():
            try:
                ending, named = self._ending.is_set, self._outputs()
                found = consume(self.settings, named, start=start, follow=True, stopping=ending)
                for records in found:
                    for record in records:
                        where = (record.topic, record.partition)
                        if record.offset >= shown.get(where, 0):
                            shown[where] = record.offset + 1
                            self._options.show(record)
            except HapaxError as error:  # a broker that is busy with its start, or has ended
                if self._ending.wait(LOOK_S):
                    return
                self._options.say(f"reading outputs again: {error}")


def _ports(settings: Settings) -> tuple[int, int]:
    """Return the ports of Kafka and of Redis, 0 for none; refuse what is not of this machine."""
    problems = []
    servers = settings.kafka.bootstrap_servers.split(",")
    host, _, port = servers[0].strip().rpartition(":")
    if len(servers) > 1 or host not in _LOCAL or not port.isdecimal():
        problems.append(
            f"HAPAX_KAFKA__BOOTSTRAP_SERVERS={settings.kafka.bootstrap_servers}: hapax dev starts"
            " its own Kafka, at one port of this machine: 127.0.0.1:19092"
        )
    url = settings.dedup.claims_url
    found = urlsplit(url or "redis://127.0.0.1:1")
    if found.scheme != "redis" or found.hostname not in _LOCAL or found.password:
        problems.append(
            "HAPAX_DEDUP__REDIS_URL: hapax dev starts its own Redis, at one port of this machine:"
            " redis://127.0.0.1:16379/0"
        )
    if settings.kafka.security.protocol != "plaintext":
        problems.append("HAPAX_KAFKA__SECURITY__PROTOCOL: the Kafka of hapax dev has no security")
    if problems:
        raise ConfigurationError(problems)
    return int(port), (6379 if found.port is None else found.port) if url else 0


class FileChanges:
    """Remembers the files of a folder, by time and size. Hidden folders and packages are left out.

    A project is a handful of files: one look takes less than a millisecond, on every file system.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = dict(self._files())

    def look(self) -> list[str]:
        before, self._seen = self._seen, dict(self._files())
        return sorted(
            os.path.relpath(name, self._folder)
            for name in before.keys() | self._seen.keys()
            if before.get(name) != self._seen.get(name)
        )

    def _files(self) -> Iterator[tuple[str, tuple[int, int]]]:
        for place, folders, names in os.walk(self._folder):
            folders[:] = [
                name for name in folders if not name.startswith(".") and name not in _LEFT_OUT
            ]
            for name in names:
                if name.endswith(SUFFIXES):
                    path = os.path.join(place, name)  # noqa: PTH118 - a path a look would double it
                    try:
                        found = os.stat(path)  # noqa: PTH116 - as above
                    except OSError:
                        continue  # it was removed meanwhile
                    yield path, (found.st_mtime_ns, found.st_size)
