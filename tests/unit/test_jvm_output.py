"""What Spark's JVM prints becomes entries: one for each thing, none for what says nothing."""

import os
import threading

import pytest

from hapax.engines.spark import jvm
from hapax.engines.spark.jvm import (
    ENTRY_LINES_MAX,
    LINE_BYTES_MAX,
    TEXT_CHARS_MAX,
    Entries,
    Entry,
    JvmOutput,
)

LINE = "spark ERROR org.apache.spark.Lost: executor 1 is lost"
LOST = Entry(40, "org.apache.spark.Lost", "executor 1 is lost")
TRACE = 'Traceback (most recent call last):\n  File "daemon.py", line 95, in worker\n'
ENDED = TRACE + "BrokenPipeError: [Errno 32] Broken pipe\n"
WRONG = TRACE + "ValueError: no\n"
TOLD = 'Traceback (most recent call last): File "daemon.py", line 95, in worker ValueError: no'
CHAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"
WITHIN_S = 10.0


def said(text: str) -> list[Entry]:
    entries = Entries()
    return [
        entry for line in text.splitlines(keepends=True) for entry in entries.take(line)
    ] + list(entries.flush())


def texts(text: str) -> list[str]:
    return [entry.text for entry in said(text)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LINE, [LOST]),
        (r"spark ERROR a.B: two\r\nlines and \n", [Entry(40, "a.B", "two lines and")]),
        (f"{LINE}\n{LINE}\n", [LOST, LOST]),
        ("spark WARN a.B: slow", [Entry(30, "a.B", "slow")]),
        ("26/11/24 15:00:00 INFO B: hello", [Entry(20, "B", "hello")]),
        ("26/11/24 15:00:00 ERROR B: x\na.Error: y\n\tat a.C\nCaused by: z\n\tat d", [
            Entry(40, "B", "x"), Entry(40, "jvm", "a.Error: y at a.C Caused by: z at d"),
        ]),
        ("hapax task: poll has taken 9 s\n", [Entry(30, "task", "poll has taken 9 s")]),
        ("hapax sink: producer: FAIL: gone\n", [Entry(30, "task", "producer: FAIL: gone")]),
        ("Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent first):\n  File a\n", [
            Entry(40, "python", "Fatal Python error: Aborted Current thread 0x1 (most recent first)"
                  ": File a"),
        ]),
        ("of business code\nand more", [
            Entry(20, "output", "of business code"), Entry(20, "output", "and more"),
        ]),
        ("#\n# A fatal error has been detected\n#\n#  SIGSEGV (0xb)\n#\n", [
            Entry(40, "jvm", "A fatal error has been detected SIGSEGV (0xb)"),
        ]),
        ("Terminating due to java.lang.OutOfMemoryError: Java heap space\n", [
            Entry(40, "jvm", "Terminating due to java.lang.OutOfMemoryError: Java heap space"),
        ]),
        ('Exception in thread "main" java.lang.Error: x\n\tat a.B(C.java:1)\n\t... 3 more\n', [
            Entry(40, "jvm", 'Exception in thread "main" java.lang.Error: x at a.B(C.java:1) ...'
                  " 3 more"),
        ]),
        ("OpenJDK 64-Bit Server VM warning: sharing\n", [
            Entry(30, "jvm", "OpenJDK 64-Bit Server VM warning: sharing"),
        ]),
    ],
)  # fmt: skip
def test_each_thing_is_one_entry_with_level_and_speaker(text, told):
    assert said(text) == told


@pytest.mark.parametrize(
    "text",
    [
        "WARNING: Using incubator modules: jdk.incubator.vector\n",
        'Setting default log level to "WARN".\n',
        "Starting Streaming TransformWithStateInPandas Python worker.\n\n",
        "To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use it\n",
        "Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nNOTE: Picked up JDK_JAVA_OPTIONS: -Xmx1g\n",
        "26/11/24 15:00:00 WARN NativeCodeLoader: Unable to load native-hadoop library for you\n",
        "26/11/24 15:00:00 WARN Utils: Your hostname, a, resolves to a loopback address: ::1\n",
        "26/11/24 15:00:00 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another\n",
        "\n\n",
        ENDED,
        ENDED.replace("BrokenPipe", "ConnectionReset"),
        "PySpark worker failed with exception:\n" + ENDED,
        WRONG + CHAIN + ENDED,
        "Exception ignored in: <_io.BufferedWriter name=5>\nBrokenPipeError: [Errno 32]\n",
        "Exception ignored in: <a generator>\n" + ENDED,
    ],
)
def test_what_says_nothing_is_left_out(text):
    assert said(text) == []
    assert said(LINE + "\n" + text + LINE) == [LOST, LOST]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (WRONG, [TOLD]),
        (WRONG + WRONG, [TOLD, TOLD]),
        (WRONG + ENDED + "after\n", [TOLD, "after"]),
        (TRACE + LINE, [TOLD.removesuffix(" ValueError: no"), LOST.text]),
        ("PySpark worker failed with exception:\n" + WRONG, [
            f"PySpark worker failed with exception: {TOLD}",
        ]),
        ("Exception in thread Thread-1 (f):\n" + WRONG, [
            f"Exception in thread Thread-1 (f): {TOLD}",
        ]),
        ("BrokenPipeError: in a line of its own\n", ["BrokenPipeError: in a line of its own"]),
        (TRACE + "E: a\n" + CHAIN + WRONG, [
            TOLD.removesuffix("ValueError: no")
            + "E: a During handling of the above exception, another exception occurred: "
            + TOLD,
        ]),
    ],
)  # fmt: skip
def test_a_traceback_is_one_entry(text, told):
    assert texts(text) == told


def test_a_long_traceback_keeps_its_beginning_and_its_end():
    (text,) = texts(TRACE + "  a frame\n" * 300 + "ValueError: no\n")
    assert len(text) <= TEXT_CHARS_MAX + 3
    assert text.startswith("Traceback")
    assert text.endswith("ValueError: no")


def test_a_stack_without_end_is_told_in_parts():
    assert len(texts("\tat a\n" * (ENTRY_LINES_MAX + 1))) == 2


class Heard:
    """Hears entries; ``hang`` keeps it from taking any."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.more = threading.Semaphore(0)
        self.free = threading.Event()
        self.free.set()

    def __call__(self, level: int, logger: str, text: str) -> None:
        assert self.free.wait(WITHIN_S)
        self.entries.append(Entry(level, logger, text))
        self.more.release()


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    with open(reading, "rb") as output, open(writing, "wb", buffering=0) as target:  # noqa: PTH123 - a number
        yield output, target


def test_an_entry_is_told_although_nothing_follows_it(pipe):
    output, target = pipe
    heard = Heard()
    JvmOutput(output, heard)
    target.write(WRONG.encode())
    assert heard.more.acquire(timeout=WITHIN_S)
    assert [entry.text for entry in heard.entries] == [TOLD]


def test_at_the_end_of_the_pipe_everything_has_been_told_and_secrets_in_their_places_hidden(pipe):
    output, target = pipe
    heard = Heard()
    told = JvmOutput(output, heard)
    said_ = b"spark ERROR a.B: -Djavax.net.ssl.keyStorePassword=hunter22 https://me:pw99@host/\n"
    target.write(f"{LINE}\n".encode() * 500 + said_ + b"no end of line \xff")
    target.close()
    told.finish(WITHIN_S)
    *lost, secret, last = heard.entries
    assert lost == [LOST] * 500
    assert secret.text == "-Djavax.net.ssl.keyStorePassword=*** https://me:***@host/"
    assert last == Entry(20, "output", "no end of line \ufffd")


def test_whoever_reads_the_log_no_more_does_not_hold_up_the_jvm(pipe, monkeypatch):
    monkeypatch.setattr(jvm, "WAITING_MAX", 50)
    output, target = pipe
    heard = Heard()
    heard.free.clear()
    told = JvmOutput(output, heard)
    line = b"x" * LINE_BYTES_MAX + b" beyond\n"
    lines = 250
    for _ in range(lines):  # far more than a pipe holds: without a reader this would never end
        target.write(line)
    target.close()
    heard.free.set()
    told.finish(WITHIN_S)
    *entries, _ = heard.entries
    dropped = [entry for entry in heard.entries if "came faster" in entry.text]
    counted = sum(int(entry.text.split()[0]) for entry in dropped)
    assert len(heard.entries) - len(dropped) + counted == lines
    assert counted > 0
    assert not [entry for entry in entries if "beyond" in entry.text]


def test_a_log_that_is_closed_ends_nothing(pipe):
    output, target = pipe
    heard: list[str] = []

    def tell(_level: int, _logger: str, text: str) -> None:
        heard.append(text)
        raise BrokenPipeError

    told = JvmOutput(output, tell)
    target.write(b"one\ntwo\n")
    target.close()
    told.finish(WITHIN_S)
    assert heard == ["one", "two"]
