"""Ids of every type that JSON has: one rule, in the record path and in the commands."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hapax.core.errors import Poison
from hapax.core.identity import Identity
from hapax.core.json_pointer import JsonPointer
from hapax.core.records import Headers, Record


def claim_of(value: bytes, headers: Headers = (), *chain: str) -> bytes:
    found = Identity(chain or ("json:/id",)).identify([Record("in", 0, 0, None, value, headers)])
    assert not found.poison
    return found.claims[0]


@pytest.mark.parametrize(
    ("spelled", "event_id"),
    [
        *(("1", b"1"), ('"1"', b"1"), ("1.0", b"1"), ("1e0", b"1"), ("10E-1", b"1")),
        *(("-0", b"0"), ("-0.0", b"0"), ("0e5", b"0"), ("1e3", b"1000"), ("-7.00", b"-7")),
        *(("9007199254740993", b"9007199254740993"), ("9007199254740993.0", b"9007199254740993")),
        ("123456789012345678901234567890", b"123456789012345678901234567890"),
        ("123456789012345678901234567890.0", b"123456789012345678901234567890"),
        ('" "', b" "),
        ('"1.50"', b"1.50"),
        ('"true"', b"true"),
    ],
)
def test_text_is_itself_and_a_whole_number_its_digits_however_it_is_spelled(spelled, event_id):
    assert claim_of(f'{{"id": {spelled}}}'.encode()) == b"json:/id\0" + event_id


@pytest.mark.parametrize(
    "spelled",
    [
        *("1.5", "12345678901234567890.5", "1e-400", "true", "false", "null", "{}", "[]", '[""]'),
        *('""', '"NaN"', '"Infinity"', '"-Infinity"', '{"id": 1}'),
    ],
)
def test_what_is_neither_has_no_id(spelled):
    assert claim_of(f'{{"id": {spelled}}}'.encode()) == b""


@pytest.mark.parametrize("spelled", ["NaN", "Infinity", "1e400", "01", "'x'"])
def test_what_json_does_not_know_is_poison(spelled):
    value = f'{{"id": "x", "other": {spelled}}}'.encode()
    assert Identity(["json:/id"]).identify([Record("in", 0, 0, None, value)]).poison


@given(st.integers(), st.integers(0, 30), st.sampled_from(["e", "E", "E+"]))
def test_every_spelling_of_a_whole_number_is_one_id(number, places, exponent):
    spelled = [str(number), f"{number}.0", f"{number}{exponent}0", f'"{number}"']
    spelled.append(f"{number * 10**places}e-{places}")
    claims = {claim_of(f'[{one}, {{"id": {one}}}]'.encode(), (), "json:/1/id") for one in spelled}
    assert claims == {b"json:/1/id\0%d" % number}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_no_json_fails_and_two_values_share_an_id_only_where_they_read_alike(data):
    try:
        claim = claim_of(json.dumps({"id": data}).encode())
    except AssertionError:
        return  # beyond the decoder's limits: a dead letter
    if isinstance(data, str) and data not in {"", "NaN", "Infinity", "-Infinity"}:
        assert claim == b"json:/id\0" + data.encode()
    elif isinstance(data, int | float) and not isinstance(data, bool) and data == int(data):
        assert claim == b"json:/id\0%d" % int(Decimal(repr(data)))
    else:
        assert claim == b""


MARK = b"\xef\xbb\xbf"


@pytest.mark.parametrize("before", [MARK, b"\0\0\0\0\7", b"\0\0\0\0\7" + MARK, b"\1" + b"g" * 16])
def test_a_byte_order_mark_and_the_id_of_a_schema_are_passed_over(before):
    assert claim_of(before + b'{"id": "x"}') == claim_of(b'{"id": "x"}')
    event = b'{"specversion": "1.0", "id": "x", "source": "s"}'
    assert claim_of(before + event, (), "cloudevents") == b"cloudevents\0s\0x"


def test_a_pointer_of_a_command_finds_what_an_id_finds():
    for spelled, text in (("1.0", b"1"), ('"x"', b"x"), ("true", None), ('"NaN"', b"NaN")):
        assert JsonPointer("/id").find(f'{{"id": {spelled}}}'.encode()) == text
    with pytest.raises(Poison):
        JsonPointer("/id").find(b"{")
    with pytest.raises(ValueError, match="no JSON pointer"):
        JsonPointer("id")
