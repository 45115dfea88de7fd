import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from operator import itemgetter

import pytest
import typer

from hapax.commands.screen import (
    age_text,
    moment_text,
    point_ms,
    print_json,
    printable,
    refusals,
    show,
    typed,
)
from hapax.core.durations import duration_ms
from hapax.core.errors import ClaimsUnavailableError, ConfigurationError, HapaxError, PreflightError

WIDEST = (
    "partition", "low", "committed", "position", "stable", "high", "lag", "lag time", "undecided",
    "remark",
)  # fmt: skip
STRANGE = "a\x1b[31m\x9b\u202eb\u2028\x7f\udc80ä[red]"


def test_what_a_terminal_would_obey_is_escaped_in_text_json_and_tables_and_the_rest_stays(capsys):
    assert printable("plain [bold] ä 語") == "plain [bold] ä 語"
    assert printable(STRANGE).isprintable()
    assert printable(b"\xff\x1bok") == "\\xff\\x1bok"
    value = {"text": STRANGE, "language": "\U000e0001"}
    print_json(value)
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert json.loads(shown) == value
    show([("x[red]\x1b[0m", 7_000)], {"name": itemgetter(0), "count": itemgetter(1)})
    shown = capsys.readouterr().out
    assert "x[red]\\x1b[0m" in shown
    assert "7,000" in shown
    assert "\x1b" not in shown


def on_a_terminal(columns: int) -> str:
    """Print the widest table of a command on a terminal; return what it shows."""
    script = (
        "from operator import itemgetter\n"
        "from hapax.commands.screen import show\n"
        f"names = {WIDEST}\n"
        "row = ['orders/0', *(f'{number}123456789' for number in range(len(names) - 2)), 'LOST']\n"
        "show([row], {name: itemgetter(place) for place, name in enumerate(names)})\n"
    )
    ours, theirs = pty.openpty()
    size = struct.pack("HHHH", 24, columns, 0, 0)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
    environ = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
    environ |= {"TERM": "xterm", "NO_COLOR": "1"}
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, stdin=theirs, stdout=theirs, env=environ, check=True)
    assert run.returncode == 0
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the other end is closed
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    return re.sub(r"\x1b\[[\d;]*m", "", shown.decode()).replace("\r", "")


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_no_word_and_no_number_of_a_table_is_broken_on_a_narrow_terminal(columns):
    shown = on_a_terminal(columns)
    assert max(map(len, shown.splitlines())) <= columns
    for number in range(8):
        assert f"{number}123456789" in shown
    assert "LOST" in shown


@pytest.mark.parametrize(
    ("error", "code", "problems"),
    [
        (ConfigurationError(["one", "two"]), 2, ["one", "two"]),
        (PreflightError(["no broker"]), 3, ["no broker"]),
        (ClaimsUnavailableError("no Redis\x1b"), 1, ["no Redis\\x1b"]),
        (HapaxError("odd"), 1, ["odd"]),
    ],
)
def test_an_error_is_one_sentence_per_problem_and_a_code(error, code, problems, capsys):
    with pytest.raises(typer.Exit) as left, refusals():
        raise error
    assert left.value.exit_code == code
    assert capsys.readouterr().err.splitlines() == problems
    with pytest.raises(typer.Exit) as left, refusals(as_json=True):
        raise error
    assert left.value.exit_code == code
    told = capsys.readouterr()
    assert json.loads(told.out) == {"ok": False, "problems": problems}
    assert not told.err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "?"),
        (0, "0s"),
        (0.44, "0.4s"),
        (75, "75s"),
        (200, "3m20s"),
        (7200, "2h"),
        (12_000, "3h20m"),
        (187_200, "2d4h"),
    ],
)
def test_ages_are_short(seconds, text):
    assert age_text(seconds) == text


def test_a_moment_is_utc_and_words_that_are_no_times_are_named_with_their_option():
    assert moment_text(1_896_091_200_123) == "2030-01-31T12:00:00.123Z"
    assert moment_text(1 << 62) == f"{1 << 62} ms"
    with pytest.raises(ConfigurationError, match="--until soon"):
        point_ms("--until", "soon")
    with pytest.raises(ConfigurationError, match="--interval 2"):
        typed("--interval", "2", duration_ms)
