import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, strategies as some
from msgspec.structs import replace

from hapax.core.errors import ConfigurationError, ExitCode, HapaxError
from hapax.core.records import Message
from hapax.operations import publish_spooled, rows as rows_module
from hapax.operations.publish import CONTENT, SPOOL, LineError, Lines
from hapax.operations.publish_spooled import FileChangedError, SpooledReader, stored_place
from hapax.operations.rows import RowForm, SourceRow, SourceRows, whole_lines
from hapax.publish import Publisher, RecordRefusedError, SpoolFullError
from tests.kit.commands import run_captured
from tests.kit.sink_parts import sink_settings

CSV = b'id,say\n1,"a\nb"\n2,""\n3,"""x"",\ny\n"\n4,z\n'
CSV_ROWS = [
    {"id": "1", "say": "a\nb"},
    {"id": "2", "say": ""},
    {"id": "3", "say": '"x",\ny\n'},
    {"id": "4", "say": "z"},
]


class KilledError(Exception):
    """Stands for the end of the process."""


class MemorySpool:
    """Keeps what outlives a process: records, and the position of the last ones.

    ``dies_after``: so many writes go well, then the process dies before the next one.
    ``full``: so many calls find no room first.
    """

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.position = b""
        self.writes: list[int] = []
        self.dies_after: int | None = None
        self.full = 0
        self.bytes_max = 1 << 20

    def publish_many(self, messages: Sequence[Message], *, position: bytes) -> list[object]:
        if self.full:
            self.full -= 1
            raise SpoolFullError("full")
        if self.dies_after is not None:
            if not self.dies_after:
                raise KilledError
            self.dies_after -= 1
        values = [message.value or b"" for message in messages]
        if any(len(value) > self.bytes_max for value in values):
            raise RecordRefusedError("too large")
        self.values += values
        self.position = position
        self.writes.append(len(values))
        return [*values]


class Reading:
    """Processes that read a source into one spool, one after the other."""

    def __init__(self, path: Path, content: bytes = b"", form: RowForm = "lines") -> None:
        self.path = path
        if content:
            path.write_bytes(content)
        self.spool = MemorySpool()
        self.form = form
        self.skip_bad = False
        self.warnings: list[str] = []
        self.stopping: Callable[[], bool] = lambda: False
        self.idle: Callable[[], None] = lambda: None

    def run(self) -> SpooledReader:
        """Read the file as a process that has just started; raise what ended it."""
        place = stored_place(self.spool.position, str(self.path), self.form)
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            reader = self.reader()
            if (failure := reader.read(descriptor, place)) is not None:
                raise failure
        finally:
            os.close(descriptor)
        return reader

    def reader(self) -> SpooledReader:
        return SpooledReader(
            cast("Publisher", self.spool),
            Lines(topic="in", form=self.form, id_from=SPOOL),
            skip_bad=self.skip_bad,
            show=lambda _text: self.idle(),
            warn=self.warnings.append,
            stopping=self._asked_to_stop,
        )

    def _asked_to_stop(self) -> bool:
        return self.stopping()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "orders"


def test_a_file_ends_with_its_last_line_complete_or_not_and_is_read_once(file):
    reading = Reading(file, b"a\n\nb\nc")
    assert reading.run().accepted == 3
    assert reading.run().accepted == 0
    assert reading.spool.values == [b"a", b"b", b"c"]


@pytest.mark.parametrize("form", ["lines", "csv"])
def test_a_run_continues_with_what_was_added_since(file, form):
    reading = Reading(file, b"id\n1\n2" if form == "csv" else b"1\n2", form)
    reading.run()
    for added in (b"", b"\r\n", b"3", b"\n4\r\n", b"\n5"):
        with file.open("ab") as more:
            more.write(added)
        reading.run()
    assert [json.loads(value) for value in reading.spool.values] == (
        [{"id": str(each)} for each in range(1, 6)] if form == "csv" else [1, 2, 3, 4, 5]
    )


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (b"first\nsecomd\n", "has other content"),
        (b"First\nsecond\nmore\n", "has other content"),
        (b"first\n", "is shorter"),
        (b"", "is shorter"),
    ],
)
def test_other_content_under_the_name_is_exit_code_6_and_nothing_of_it_is_read(file, now, words):
    reading = Reading(file, b"first\nsecond\n")
    reading.run()
    file.write_bytes(now)
    for _run in range(2):
        with pytest.raises(FileChangedError, match=rf"{words}.*--spool of its own") as changed:
            reading.run()
        assert changed.value.exit_code == ExitCode.POSITION_LOST
    assert reading.spool.values == [b"first", b"second"]
    file.write_bytes(b"first\nsecond\nthird\n")
    reading.run()
    assert reading.spool.values[2:] == [b"third"]


def test_a_last_line_that_had_no_end_and_has_more_now_is_not_made_two_records(file):
    reading = Reading(file, b"a\nhalf")
    reading.run()
    file.write_bytes(b"a\nhalf a line\nb\n")
    with pytest.raises(FileChangedError, match="continues its last line, which had no end"):
        reading.run()
    assert reading.spool.values == [b"a", b"half"]


def test_a_reader_that_dies_before_any_write_of_a_csv_file_loses_and_doubles_no_row(
    file, monkeypatch
):
    monkeypatch.setattr(publish_spooled, "BATCH_RECORDS", 1)
    for chunk in range(1, len(CSV) + 1):
        monkeypatch.setattr(publish_spooled, "CHUNK_BYTES", chunk)
        for dies_after in range(len(CSV_ROWS)):
            reading = Reading(file, CSV, "csv")
            reading.spool.dies_after = dies_after
            with pytest.raises(KilledError):
                reading.run()
            reading.spool.dies_after = None
            assert reading.run().accepted == len(CSV_ROWS) - dies_after
            assert [json.loads(value) for value in reading.spool.values] == CSV_ROWS


def test_lines_of_a_pipe_are_accepted_before_it_waits_for_further_ones(tmp_path):
    reading = Reading(tmp_path)
    out, into = os.pipe()
    steps: Iterator[Callable[[], object]] = iter(
        [lambda: os.write(into, b"c\nd"), lambda: os.write(into, b"e\nf")]
    )
    seen = []

    def idle() -> None:
        seen.append([*reading.spool.values])
        if (step := next(steps, None)) is None:
            reading.stopping = lambda: True
        else:
            step()

    reading.idle = idle
    os.write(into, b"a\nb\n")
    assert reading.reader().read(out, stored_place(b"", "", "lines")) is None
    assert seen[0] == [b"a", b"b"]
    assert seen[-1] == reading.spool.values == [b"a", b"b", b"c", b"de"]
    reading.stopping = lambda: False
    os.close(into)
    assert reading.reader().read(out, stored_place(reading.spool.position, "", "lines")) is None
    os.close(out)
    assert len(reading.spool.values) == 4


def test_a_stop_ends_the_reading_between_rows_and_the_next_run_continues(file, monkeypatch):
    monkeypatch.setattr(publish_spooled, "BATCH_RECORDS", 1)
    reading = Reading(file, b"a\nb\nc\n")
    reading.stopping = lambda: bool(reading.spool.values)
    assert reading.run().accepted == 1
    reading.stopping = lambda: False
    assert reading.run().accepted == 2
    assert reading.spool.values == [b"a", b"b", b"c"]


def test_a_full_spool_is_waited_for_and_nothing_is_read_meanwhile(file):
    reading = Reading(file, b"a\nb\n")
    reading.spool.full = 3
    assert reading.run().accepted == 2
    assert reading.spool.values == [b"a", b"b"]


@pytest.mark.parametrize("batch", [1, 2])
def test_rows_that_found_no_room_before_a_stop_come_before_all_later_ones(file, monkeypatch, batch):
    monkeypatch.setattr(publish_spooled, "BATCH_RECORDS", batch)
    reading = Reading(file, b"a\nb\nc\nd\ne\n")
    reading.spool.full = 1
    reading.stopping = lambda: not reading.spool.full
    reading.run()
    assert reading.spool.values == []
    reading.stopping = lambda: False
    reading.run()
    assert reading.spool.values == [b"a", b"b", b"c", b"d", b"e"]


def test_a_line_that_is_no_record_stops_it_or_is_left_out(file):
    reading = Reading(file, b'{"a": 1}\nnonsense\n{"a": 2}\n', "json-lines")
    for _run in range(2):
        with pytest.raises(HapaxError, match=r"line 2 is not JSON.*--skip-bad-lines"):
            reading.run()
        assert reading.spool.values == [b'{"a": 1}']
    reading.skip_bad = True
    assert reading.run().skipped == 1
    assert reading.warnings == ["left out: line 2 is not JSON"]
    assert reading.spool.values == [b'{"a": 1}', b'{"a": 2}']


def test_a_spool_of_another_source_form_or_program_is_refused(file):
    reading = Reading(file, b"a\n")
    reading.run()
    position = reading.spool.position
    with pytest.raises(ConfigurationError, match=r"belongs to .*/orders, not to /other: each"):
        stored_place(position, "/other", "lines")
    with pytest.raises(ConfigurationError, match=r"belongs to .*/orders, not to standard input"):
        stored_place(position, "", "lines")
    with pytest.raises(ConfigurationError, match="was read with --format lines so far"):
        stored_place(position, str(file), "csv")
    with pytest.raises(ConfigurationError, match="filled by another program"):
        stored_place(b"12", str(file), "lines")


def test_many_rows_are_accepted_some_at_a_time(file, monkeypatch):
    monkeypatch.setattr(publish_spooled, "BATCH_RECORDS", 100)
    reading = Reading(file, b"".join(b"%d\n" % number for number in range(250)))
    reading.run()
    assert reading.spool.writes == [100, 100, 50]


def test_a_record_that_is_refused_stops_it_after_those_before_it(file):
    reading = Reading(file, b"a\nb\ntoo large\nc\n")
    reading.spool.bytes_max = 5
    for _run in range(2):
        with pytest.raises(HapaxError, match="line 3: too large; everything before it"):
            reading.run()
        assert reading.spool.values == [b"a", b"b"]
    reading.spool.bytes_max = 100
    reading.run()
    assert reading.spool.values == [b"a", b"b", b"too large", b"c"]


@pytest.fixture
def away(tmp_path, monkeypatch):
    """A publisher whose brokers do not answer."""
    monkeypatch.setattr("hapax.publish.publisher.MARKER_TIMEOUT_S", 0.1)
    publisher = Publisher(tmp_path / "spool", sink_settings("127.0.0.1:1", "app"))
    yield publisher
    publisher.close(timeout_s=0)


MISFITS: dict[str, list[Any]] = {
    "topic": ["", "a b", "..", b"in", None],
    "value": ["text", {"n": 1}],
    "key": ["k", 7],
    "partition": [True, -2, -1.0, None, 1 << 31],
    "timestamp_ms": [1.5, -1, 1 << 63, False],
    "headers": [
        *[None, [("trace", "abc")], [(b"trace", b"abc")], {"trace": b"abc"}, "abc"],
        *([("whole", b"1"), (cut, b"2")] for cut in ("a\0b", "\0")),  # the client would cut them
    ],
}
FIT = {"topic": "in", "value": b"", "key": b"", "partition": 0, "timestamp_ms": 0}
FIT["headers"] = [("", b""), ("x", None), ("x", b"1")]


def test_what_is_a_record_of_no_topic_is_refused_before_it_is_accepted(away):
    fit = Message(**FIT)  # type: ignore[arg-type]
    for field, misfits in MISFITS.items():
        for value in misfits:
            with pytest.raises(RecordRefusedError, match=field):
                away.publish_many([fit, replace(fit, **{field: value})])
    for more in ({"headers": ["trace"]}, {"message_id": 7}, {"message_id": "\udc80"}):
        with pytest.raises(RecordRefusedError, match="headers must be pairs"):
            away.publish("in", b"", **more)
    with pytest.raises(RecordRefusedError, match="must be a Message"):
        away.publish_many(["text"])
    with pytest.raises(RecordRefusedError, match="position must be bytes"):
        away.publish_many([fit], position="7")
    assert (away.waiting, away.position) == (0, b"")
    away.publish_many([fit])
    assert away.waiting == 1


def test_a_child_of_fork_is_refused_at_once_and_does_no_harm_to_the_spool(tmp_path):
    done = run_captured([sys.executable, "-c", FORK, str(tmp_path / "spool")], timeout=60)
    refused = "has one publisher in one process: open one after the fork"
    assert [refused in line for line in done.stdout.splitlines()] == [True] * 4, done
    assert (done.returncode, done.stderr) == (0, "")


FORK = """
import asyncio, os, sys
import hapax.publish.publisher
from hapax.core.errors import StopError
from tests.kit.sink_parts import sink_settings
hapax.publish.publisher.MARKER_TIMEOUT_S = 0.1
settings = sink_settings("127.0.0.1:1", "app")
publisher = hapax.publish.Publisher(sys.argv[1], settings)
publisher.publish("in", b"a")
(told, tell), (ended, end) = os.pipe(), os.pipe()
if not os.fork():
    for call in (
        lambda: publisher.publish("in", b"lost"),
        lambda: publisher.publish_many([]),
        lambda: publisher.flush(30),
        lambda: asyncio.run(publisher.publish_async("other", b"lost")),
    ):
        try:
            call()
        except StopError as error:
            print(error, flush=True)
    publisher.close()
    os.write(tell, b"x")
    os.read(ended, 1)
    sys.exit(0)  # as a process ends: with everything that its objects do then
os.read(told, 1)
for waiting in (1, 2):  # first while the child lives
    publisher.close(timeout_s=0)
    publisher = hapax.publish.Publisher(sys.argv[1], settings)
    assert publisher.waiting == waiting
    os.write(end, b"x")
    publisher.publish("in", b"b")
    os.wait() if waiting == 1 else publisher.close(timeout_s=0)
"""


def rows(form: RowForm, text: bytes) -> list[SourceRow]:
    return list(SourceRows(form, text.splitlines(keepends=True)))


def cut(text: bytes, *places: int) -> list[bytes]:
    pieces = iter([text[a:b] for a, b in pairwise(sorted({0, *places, len(text)}))] + [b""])
    return list(whole_lines(lambda: next(pieces)))


@given(some.lists(some.binary(max_size=9)), some.lists(some.integers(0, 90)))
def test_text_that_arrives_in_any_pieces_is_the_same_lines(parts, places):
    text = b"\n".join(parts)
    whole = cut(text, *(place for place in places if place < len(text)))
    assert b"".join(whole) == text
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in whole[:-1])


def test_a_line_that_is_not_complete_is_none_when_reading_stops():
    pieces = iter([b"a\nb", None])
    assert list(whole_lines(lambda: next(pieces))) == [b"a\n"]


def test_a_line_without_an_end_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(rows_module, "LINE_BYTES_MAX", 1 << 20)
    with pytest.raises(HapaxError, match="does not end within"):
        list(whole_lines(lambda: bytes(1 << 18)))


FIELD = some.text(some.characters(codec="utf-8", exclude_characters="\r\0"), max_size=6)


@given(some.lists(some.lists(FIELD, min_size=2, max_size=2), max_size=6))
def test_csv_rows_are_objects_whatever_their_fields_contain(table):
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows([["a", "b"], *table])
    text = made.getvalue().encode()
    found = rows("csv", text)
    assert [json.loads(row.value) for row in found] == [
        dict(zip("ab", row, strict=True)) for row in table
    ]
    assert not found or found[-1].end == len(text)


def test_rows_say_where_they_are_and_empty_ones_are_none():
    found = rows("csv", b'\xef\xbb\xbfid,say\r\n\r\n1,"a\nb"\r\n2,c\r\n')
    assert [(row.line, row.end) for row in found] == [(3, 22), (5, 27)]
    assert json.loads(found[0].value) == {"id": "1", "say": "a\nb"}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (b"a,b\n1,2\n1\n", 3, "has 1 fields, and the header has 2"),
        (b'a,b\n1,2\n"x"y,2\n', 3, "is not CSV"),
        (b'a,b\n1,2\n3,"open\n', 3, "is not CSV"),
        (b"a,b\n1,2\n\xff,3\n", 3, "is not UTF-8"),
        (b"a,a\n1,2\n", 1, "is a header with a twice"),
        (b"a,\xff\n1,2\n", 1, "is a header that is not UTF-8"),
    ],
)
def test_a_row_that_is_no_csv_is_named(text, line, problem):
    (bad,) = [row for row in rows("csv", text) if row.problem][:1]
    assert bad.line == line
    assert bad.problem.startswith(problem)


def test_json_lines_are_checked_and_stay_as_they_are():
    first, second = rows("json-lines", b'{"a":  1}\n{"a": \n')
    assert (first.value, first.problem) == (b'{"a":  1}', "")
    assert (second.line, second.problem) == (2, "is not JSON")


def test_a_byte_order_mark_before_json_lines_is_the_files_and_of_no_record():
    first, second = rows("json-lines", b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n')
    assert (first.value, first.problem) == (b'{"a": 1}', "")
    assert (second.value, second.end) == (b'{"a": 2}', 21)


# -- lines --------------------------------------------------------------------------------


def made(how: Lines, *lines: bytes) -> list[Message]:
    make = how.maker()
    return [make(row, 5 + place) for place, row in enumerate(SourceRows(how.form, lines))]


def test_each_line_is_a_record_and_empty_ones_are_none():
    found = made(Lines(topic="in", headers=(("a", b"b"),)), b'{"n": 1}\r\n', b"\n", b"\xff\n")
    assert [message.value for message in found] == [b'{"n": 1}', b"\xff"]
    assert {(message.topic, message.partition) for message in found} == {("in", -1)}
    assert [message.timestamp_ms for message in found] == [5, 6]  # when each was read
    assert all(message.headers[0] == ("a", b"b") for message in found)
    assert len({dict(message.headers)["message-id"] for message in found}) == 2


def test_id_and_key_come_from_where_they_are_said_to_stand():
    how = Lines(topic="in", id_pointer="/order/id", key_pointer="/customer", id_header="event")
    (message,) = made(how, b'{"order": {"id": 17}, "customer": "c-1"}')
    assert message.key == b"c-1"
    assert message.headers == [("event", b"17")]


def test_the_same_line_is_the_same_event_when_its_content_is_the_id():
    how = Lines(topic="in", id_from=CONTENT)
    ids = [dict(message.headers)["message-id"] for message in made(how, b"a", b"b", b"a\n")]
    assert ids[0] == ids[2] != ids[1]


def test_an_id_that_is_given_is_that_of_all():
    assert [m.headers for m in made(Lines(topic="in", id=b"e"), b"a")] == [[("message-id", b"e")]]


@pytest.mark.parametrize("line", [b"no json", b'{"id": null}', b'{"id": ""}', b"[]", b"\xff"])
def test_a_line_without_its_id_is_named(line):
    with pytest.raises(LineError, match="line 2"):
        made(Lines(topic="in", id_pointer="/id"), b'{"id": 1}', line)
