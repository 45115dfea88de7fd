from __future__ import annotations

from io import BytesIO

import pytest

from hapax.engines.spark.jvm_output import pass_on

PLAIN = b"spark ERROR Executor: lost\n"
TRACE = b'Traceback (most recent call last):\n  File "daemon.py", line 95, in worker\n'
ENDED = TRACE + b"BrokenPipeError: [Errno 32] Broken pipe\n"
WRONG = TRACE + b"ValueError: no\n"


def passed(text: bytes) -> bytes:
    target = BytesIO()
    pass_on(text.splitlines(keepends=True), target)
    return target.getvalue()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (PLAIN, PLAIN),
        (ENDED, b""),
        (PLAIN + ENDED + PLAIN, PLAIN + PLAIN),
        (ENDED.replace(b"BrokenPipe", b"ConnectionReset"), b""),
        (WRONG, WRONG),
        (TRACE + ENDED, b""),
        (WRONG + ENDED + WRONG, WRONG + WRONG),
        (b"BrokenPipeError: in a line of its own\n", b"BrokenPipeError: in a line of its own\n"),
        (TRACE, TRACE),
        (b"\tat java.Thread\n no newline", b"\tat java.Thread\n no newline"),
    ],
)
def test_tracebacks_of_connections_that_have_ended_are_left_out_and_nothing_else_is(
    text: bytes, kept: bytes
) -> None:
    assert passed(text) == kept
