"""The command line: ``hapax`` and ``python -m hapax``. Thin; each command is a file."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING

from hapax.core.interrupt import raise_ctrl_c
from hapax.core.working_folder import import_from_here
from hapax.telemetry.line_queue import flush_lines, write_within

if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import NoReturn

_PROCESS, _EXIT_AT_ONCE = os.getpid(), os._exit


def main() -> None:
    sys.excepthook, threading.excepthook = _show, _show_of_thread
    os._exit = _exit
    import_from_here()
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed: the next socket would have its number
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, "r" if name == "stdin" else "w"))
    if sys.argv[1:2] == ["run"]:
        # Until the service listens itself nothing is open that would have to be drained. The first
        # process of a container would otherwise not hear the signal at all.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave)
    if sys.argv[1:] == ["run"]:
        _end(_run())
    from hapax.commands.tree import app

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, raise_ctrl_c)
    try:
        app()
    except SystemExit as leaving:
        if isinstance(leaving.code, int):
            _end(leaving.code)
        raise


def _run() -> int:
    # The path of every restart: a killed worker must commit again within two seconds, and the
    # parser with its terminal library costs a tenth of that.
    from hapax.commands.run import run

    try:
        return run()
    except BaseException as error:  # noqa: BLE001 - as the interpreter would end it
        _show(type(error), error, error.__traceback__)
        return 1


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    text = "".join(traceback.format_exception(kind, error, trace))
    try:
        from hapax.settings.secrets import Strike, secrets_around

        text = Strike(secrets_around(os.environ))(text)
    except Exception:  # noqa: BLE001 - an error of its own must not hide the first; no text then
        text = f"{kind.__name__}: its text cannot be shown without secrets\n"
    write_within(lambda: sys.stderr.write(text))


def _show_of_thread(failure: threading.ExceptHookArgs) -> None:
    if failure.exc_type is not SystemExit and failure.exc_value is not None:
        _show(failure.exc_type, failure.exc_value, failure.exc_traceback)


def _end(code: int) -> NoReturn:
    """Leave at once, without taking the interpreter apart.

    Threads of the client are left to themselves when their broker does not answer; one that calls
    back while the interpreter is taken apart ends the process with SIGSEGV (docs/non-obvious.md).
    """
    flush_lines()
    for stream in (sys.stdout, sys.stderr):
        write_within(stream.flush)
    _EXIT_AT_ONCE(code)


def _leave(_number: int, _frame: FrameType | None) -> None:
    _EXIT_AT_ONCE(0)


def _exit(status: int) -> NoReturn:
    """Replace ``os._exit``: 0 says that all is done, which only the service may say."""
    _EXIT_AT_ONCE(status or int(os.getpid() == _PROCESS))


if __name__ == "__main__":
    main()
