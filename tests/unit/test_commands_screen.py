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

import msgspec
import pytest
import typer

from hapax.commands import screen
from hapax.core.durations import duration_ms
from hapax.core.errors import ClaimsUnavailableError, ConfigurationError, HapaxError, PreflightError
from hapax.operations.state import KeptValue
from tests.kit.commands import run_captured

WIDEST = (
    "partition", "low", "committed", "position", "stable", "high", "lag", "lag time", "undecided",
    "remark",
)  # fmt: skip
STRANGE = "a\x1b[31m\x9b\u202eb\u2028\x7f\udc80ä[red]"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"text", {"base64": "dGV4dA=="}),
        ("dGV4dA==", "dGV4dA=="),
        ([{"a": b""}, None], [{"a": {"base64": ""}}, None]),
        ({True: 1, (1, 2): 2, b"a": 3}, {"true": 1, "[1, 2]": 2, '{"base64": "YQ=="}': 3}),
        (float("-inf"), "-inf"),
    ],
    ids=["bytes", "text", "nested", "keys", "no number"],
)
def test_what_is_kept_is_shown_as_json_has_it_and_bytes_are_not_like_text(value, shown):
    kept = KeptValue(0, b"k", "n", msgspec.msgpack.encode(value))
    assert json.loads(json.dumps(kept.value, allow_nan=False)) == shown


def test_what_a_terminal_would_obey_is_escaped_in_text_json_and_tables_and_the_rest_stays(capsys):
    assert screen.printable("plain [bold] ä 語") == "plain [bold] ä 語"
    assert screen.printable(STRANGE).isprintable()
    assert screen.printable(b"\xff\x1bok") == "\\xff\\x1bok"
    value = {"text": STRANGE, "language": "\U000e0001"}
    screen.print_json(value)
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert json.loads(shown) == value
    screen.show([("x[red]\x1b[0m", 7_000)], {"name": itemgetter(0), "count": itemgetter(1)})
    shown = capsys.readouterr().out
    assert "x[red]\\x1b[0m" in shown
    assert "7,000" in shown
    assert "\x1b" not in shown


TABLE = f"""
from operator import itemgetter
from hapax.commands.screen import show
names = {WIDEST}
row = ['orders/0', *(f'{{number}}123456789' for number in range(len(names) - 2)), 'LOST']
show([row], {{name: itemgetter(place) for place, name in enumerate(names)}})
"""
"""Prints the widest table of a command."""
WORK = """
import sys, time
from hapax.commands.screen import ProgressLine, print_json, refusals
ProgressLine.INTERVAL_S = ProgressLine._LOOK_S = 0.0
with refusals(as_json=True) as line:
    for done in range(400, 4_001, 400):
        line.show("reading [b]orders", done, 4_000)
        shown_s = time.monotonic()
        while time.monotonic() - shown_s < 0.05:
            pass
        if done == 2_000:
            print("a log line", file=sys.stderr)
        if done == int(sys.argv[1]):
            raise KeyboardInterrupt
    line.show("waiting", note="for members")
print_json({"ok": True})
"""
"""Reads 4,000 things in ten steps."""
HALF = r"2,000 of 4,000 \(50%\), [\d,]+\.\d/s, ETA \d:\d\d:\d\d"


def on_a_terminal(
    script: str, *words: str, columns: int, code: int = 0, **variables: str
) -> tuple[str, str]:
    """Return what a script shows on a terminal, and what goes to standard output elsewhere."""
    ours, theirs = pty.openpty()
    size = struct.pack("HHHH", 24, columns, 0, 0)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
    environ = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
    environ |= {"TERM": "xterm", "NO_COLOR": "1"} | variables
    command = [sys.executable, "-c", script, *words]
    to = theirs if script == TABLE else subprocess.PIPE
    run = subprocess.run(command, stdin=theirs, stdout=to, stderr=theirs, env=environ, check=False)
    assert run.returncode == code
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the other end is closed
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    return shown.decode(), (run.stdout or b"").decode()


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_no_word_and_no_number_of_a_table_is_broken_on_a_narrow_terminal(columns):
    shown = re.sub(r"\x1b\[[\d;]*m|\r", "", on_a_terminal(TABLE, columns=columns)[0])
    assert max(map(len, shown.splitlines())) <= columns
    for number in range(8):
        assert f"{number}123456789" in shown
    assert "LOST" in shown


def test_progress_on_a_terminal_is_a_bar_with_count_rate_and_time_left_that_is_gone_at_the_end():
    shown, told = on_a_terminal(WORK, "0", columns=100)
    assert json.loads(told) == {"ok": True}
    assert re.search(rf"reading \[b\]orders \W*\S*━\S*\W* {HALF}", shown), shown
    assert re.search(r"\r\x1b\[2Ka log line\r\n", shown), "a log goes above the line"
    assert shown.endswith("\x1b[1A\x1b[2K")
    assert not re.search(r"\x1b\[[\d;]*m", shown), "NO_COLOR"
    colourful, _ = on_a_terminal(WORK, "0", columns=100, NO_COLOR="")
    assert re.search(r"\x1b\[[\d;]+m", colourful)


def test_ctrl_c_leaves_no_line_and_no_hidden_cursor_behind():
    shown, told = on_a_terminal(WORK, "800", columns=100, code=-2)
    assert told == ""
    cleared, _, trace = shown.rpartition("\x1b[1A\x1b[2K")
    assert cleared.rfind("\x1b[?25h") > cleared.rfind("\x1b[?25l")
    assert trace.startswith("Traceback")


@pytest.mark.parametrize("dumb", [True, False])
def test_progress_elsewhere_is_plain_lines_and_none_of_short_work(dumb):
    if dumb:
        shown, told = on_a_terminal(WORK, "0", columns=100, TERM="dumb")
    else:
        done = run_captured([sys.executable, "-c", WORK, "0"])
        shown, told = done.stderr, done.stdout
    assert json.loads(told) == {"ok": True}
    assert "\x1b" not in shown
    lines = shown.splitlines()
    assert lines[0] == "reading [b]orders: 400 of 4,000 (10%)"
    assert re.fullmatch(rf".*: {HALF}", lines[4])
    assert lines[5] == "a log line"
    assert lines[-1] == "waiting: for members"
    short = WORK.replace("INTERVAL_S = ProgressLine._LOOK_S = 0.0", "INTERVAL_S = 600.0")
    assert run_captured([sys.executable, "-c", short, "0"]).stderr == "a log line\n"


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
    with pytest.raises(typer.Exit) as left, screen.refusals():
        raise error
    assert left.value.exit_code == code
    assert capsys.readouterr().err.splitlines() == problems
    with pytest.raises(typer.Exit) as left, screen.refusals(as_json=True):
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
    assert screen.age_text(seconds) == text


def test_a_moment_is_utc_and_words_that_are_no_times_are_named_with_their_option():
    assert screen.moment_text(1_896_091_200_123) == "2030-01-31T12:00:00.123Z"
    assert screen.moment_text(1 << 62) == f"{1 << 62} ms"
    with pytest.raises(ConfigurationError, match="--until soon"):
        screen.point_ms("--until", "soon")
    with pytest.raises(ConfigurationError, match="--interval 2"):
        screen.typed("--interval", "2", duration_ms)
