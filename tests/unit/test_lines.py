from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hapax.operations.publish import CONTENT, LineError, Lines

if TYPE_CHECKING:
    from hapax.core.ports import Message


def made(how: Lines, *lines: bytes) -> list[Message]:
    return list(how.messages(lines, 5))


def test_each_line_is_a_record_and_empty_ones_are_none():
    found = made(Lines(topic="in", headers=(("a", b"b"),)), b'{"n": 1}\r\n', b"\n", b"\xff\n")
    assert [message.value for message in found] == [b'{"n": 1}', b"\xff"]
    assert {(message.topic, message.partition, message.timestamp_ms) for message in found} == {
        ("in", -1, 5)
    }
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
