"""Calls of the transform in a process that may die: the Elsewhere of processing/crash_markers.py.

The process is a fresh interpreter, never a fork: it shares no connection and no lock with this one,
and loads the function as a start does.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hapax.core.errors import ConfigurationError
from hapax.core.interrupt import Interrupt
from hapax.core.record_path import Batch
from hapax.core.records import Output, Record
from hapax.core.results import Failure, Later, Undecided
from hapax.core.working_folder import import_path
from hapax.engines import overlapping_calls
from hapax.engines.watchdog import TICK_S, Watchdog
from hapax.processing.call_window import CallLimits
from hapax.processing.crash_markers import Death, IsolationError, KilledFromOutside
from hapax.processing.keyed_state import KeyedState, MemoryState, changes_of
from hapax.processing.transform import load_form
from hapax.telemetry.logs import configure_logs, relay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hapax.core.results import Result
    from hapax.processing.transform import Transformer

MODULE = "hapax.engines.isolated_calls"
END_WAIT_S = 5.0
LOAD_S = 60.0
"""A limit on calls says nothing about what is imported and set up before the first one."""
SILENT_S = 5.0
"""Beyond its limit, after which an attempt that lets no other thread run counts as hanging."""
BEAT, HUNG, SAID = b"", b"hung", b"said"
FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT")
_LIMITS = msgspec.msgpack.Decoder(tuple[CallLimits, float, float, dict[str, str]])
_RESULTS = msgspec.msgpack.Decoder(
    tuple[
        list[tuple[Output, ...] | Failure | Later | Undecided],
        list[Any],
        list[dict[bytes, bytes | None] | None],
    ]
)
_CALLS = msgspec.msgpack.Decoder(tuple[list[Record], list[dict[bytes, bytes]]])


class IsolatedCalls:
    """One process at a time, started by the first call.

    transform  ``package.module:function``; None: the identity
    limits     how calls are made
    limit_s    longest attempt, by the other process's own watchdog
    whole_s    what all attempts at a record may take, and loading, which has at least ``LOAD_S``
    names      app, instance and engine, for hapax/context.py; what it logs and counts is sent here
    """

    def __init__(
        self,
        transform: str | None,
        limits: CallLimits,
        limit_s: float,
        whole_s: float = math.inf,
        state: KeyedState | None = None,
        **names: str,
    ) -> None:
        limits = msgspec.structs.replace(limits, timeout_s=limits.timeout_s or limit_s)
        # With secrets: no list of processes shows them.
        self._limits = msgspec.msgpack.encode((limits, limit_s, whole_s, names))
        self._transform = transform or ""
        self._state = state
        self._limit_s = limit_s
        self._load_s = max(LOAD_S, whole_s if math.isfinite(whole_s) else limit_s)
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def call(self, records: Sequence[Record]) -> Sequence[Result]:
        channel = self._channel or self._start()
        state = self._state
        entries = [] if state is None else [state.entries(record) for record in records]
        try:
            send(channel, msgspec.msgpack.encode((records, entries)))
            results, counted, changed = _RESULTS.decode(self._answer(channel))
        except TimeoutError:
            self.close()
            raise Death(f"it did not return within {self._limit_s:g} s", hung=True) from None
        except (EOFError, OSError):
            how = self._end()
            ended = KilledFromOutside if how.endswith(FROM_OUTSIDE) else Death
            raise ended(how, hung=False) from None
        overlapping_calls.add_counted(counted)
        return results if state is None else list(map(state.take, records, results, changed))

    def _answer(self, channel: socket.socket) -> bytes:
        """Return what comes after beats; raise TimeoutError on a hang, and where no beat comes.

        In ticks, as of a watchdog: time in which both were frozen counts for nothing.
        """
        silent_s = 0.0
        while silent_s <= self._limit_s + SILENT_S:
            channel.settimeout(TICK_S)
            try:
                channel.recv(1, socket.MSG_PEEK)
            except TimeoutError:
                silent_s += TICK_S
                continue
            channel.settimeout(self._load_s)
            frame, silent_s = _heard(channel), 0.0
            if frame == HUNG:
                break
            if frame not in {BEAT, SAID}:
                return frame
        raise TimeoutError

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
        self._end()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        # The variable would put the working folder before Python itself, and -m as well.
        path, last = import_path().split(os.pathsep), sys.path[-1:]
        here = last if last == [str(Path.cwd())] else []
        known = os.pathsep.join(each for each in path if each not in here)
        environment = {**os.environ, "PYTHONPATH": known}
        words = [str(theirs.fileno()), self._transform, *here]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, *words],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a transform that kills its group kills only itself
            )
        except OSError as error:
            ours.close()
            raise IsolationError(f"no process for isolated calls: {error}") from error
        finally:
            theirs.close()
        ours.settimeout(self._load_s)
        self._channel = ours
        try:
            send(ours, self._limits)
            while _heard(ours) == SAID:
                pass
        except (EOFError, OSError) as error:
            within = ""
            if isinstance(error, TimeoutError):
                self._process.kill()
                within = f" within {self._load_s:g} s (of HAPAX_GROUP__MAX_POLL_INTERVAL)"
            raise IsolationError(
                f"a process for isolated calls did not load the transform{within}: {self._end()}"
            ) from error
        return ours

    def _end(self) -> str:
        process, self._process = self._process, None
        channel, self._channel = self._channel, None
        if channel is not None:
            with suppress(OSError):
                channel.close()
        if process is None:
            return "it was closed"
        try:
            code = process.wait(END_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code >= 0:
            return f"it ended with exit code {code}"
        try:
            return f"it was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"it was ended by signal {-code}"


# -- The other side -------------------------------------------------------------------------------


FRAME = struct.Struct("!Q")
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
_SHARE = 0.9
"""Of the memory that is left: the rest is for the process that waits."""


def _heard(source: socket.socket) -> bytes:
    """Return one frame; SAID: a line of business code's, which is logged here."""
    frame = receive(source)
    said = frame.startswith(SAID) and relay(frame.removeprefix(SAID))
    return SAID if said else frame


def send(to: socket.socket, content: bytes) -> None:
    to.sendall(FRAME.pack(len(content)) + content)


def receive(source: socket.socket) -> bytes:
    """Return one frame; raise EOFError when the other side is gone."""
    (length,) = FRAME.unpack(_exactly(source, FRAME.size))
    return _exactly(source, length)


def _exactly(source: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = source.recv(min(count - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def main(words: list[str]) -> None:
    channel = socket.socket(fileno=int(words[0]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # no person raises KeyboardInterrupt then
    _end_with_parent()
    _limit_memory()
    talk = threading.Lock()

    def say(frame: bytes) -> None:
        with talk:
            send(channel, frame)

    try:
        limits, *limits_s, names = _LIMITS.decode(receive(channel))
        configure_logs("debug", "json", to=lambda line: say(SAID + line), **dict[str, Any](names))
        sys.path += words[2:]
        form, given = load_form(words[1] or None), MemoryState()
        state = KeyedState(given, "") if form.stateful else None
        transformer = overlapping_calls.open_transformer(form, limits, state=state)
    except (ConfigurationError, EOFError, OSError) as error:
        sys.stderr.write(f"hapax: a process for isolated calls: {error}\n")
        return
    interrupt = Interrupt()
    _watch(say, transformer, interrupt, *limits_s)
    with suppress(EOFError, OSError):
        while True:
            records, entries = _CALLS.decode(receive(channel))
            given.values = {name: value for each in entries for name, value in each.items()}
            results = transformer.apply_all(Batch(records), interrupt, {})
            if state is not None:
                state.clear()
            counted, changed = overlapping_calls.take_counted(), map(changes_of, results)
            answer = [_encodable(result) for result in results], counted, list(changed)
            say(msgspec.msgpack.encode(answer))


def _watch(
    say: Callable[[bytes], None],
    transformer: Transformer | overlapping_calls.GatheredCalls,
    interrupt: Interrupt,
    limit_s: float,
    whole_s: float,
) -> None:
    """Say that all is loaded; then beat, and count attempts as the service does."""

    def tick() -> tuple[Record, float] | None:
        say(BEAT)
        return (
            transformer.calls.tick()
            if isinstance(transformer, overlapping_calls.GatheredCalls)
            else None
        )

    say(BEAT)
    watchdog = Watchdog(math.inf, on_overrun=lambda _call, _s: None)
    watchdog.limit_calls(interrupt, limit_s, lambda _where, _s: say(HUNG), whole_s)
    watchdog.follow(tick)
    watchdog.start()


def _encodable(result: Result | None) -> Result | None:
    try:
        msgspec.msgpack.encode(result)
    except Exception as error:  # noqa: BLE001 - whatever an output holds that is no text or number
        text = f"an output cannot be encoded: {type(error).__name__}: {error}"
        return Failure("Poison", text, 1)
    return result


def _end_with_parent() -> None:
    """Ask Linux to end this process with its parent, also inside of an endless call."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))


def _limit_memory() -> None:
    """Let what asks for more die alone: a container out of memory is killed as a whole."""
    left = memory_left()
    if left is None:
        return
    with suppress(ImportError, OSError, ValueError):
        import resource

        _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = int(left * _SHARE)
        if hard == resource.RLIM_INFINITY or limit < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def memory_left() -> int | None:
    """Return the bytes that machine and container have left; None where neither says."""
    found = []
    with suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    with suppress(OSError, ValueError):  # cgroup v2; "max" is no number
        group = Path("/sys/fs/cgroup")
        found.append(
            int((group / "memory.max").read_text(encoding="ascii"))
            - int((group / "memory.current").read_text(encoding="ascii"))
        )
    return max(0, min(found)) if found else None


if __name__ == "__main__":
    main(sys.argv[1:])
