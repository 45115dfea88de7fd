import csv
import io
import json
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from hapax.core.errors import HapaxError
from hapax.core.ports import Message
from hapax.operations import rows as rows_module
from hapax.operations.publish import CONTENT, LineError, Lines
from hapax.operations.rows import RowForm, SourceRow, SourceRows, whole_lines


def rows(form: RowForm, text: bytes) -> list[SourceRow]:
    return list(SourceRows(form, text.splitlines(keepends=True)))


def cut(text: bytes, *places: int) -> list[bytes]:
    """Return the lines of a text that arrives in pieces."""
    edges = sorted({0, *places, len(text)})
    pieces = iter([text[a:b] for a, b in pairwise(edges)] + [b""])
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
    return list(how.messages(lines, count(5).__next__))


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
