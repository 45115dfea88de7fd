import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from hapax.core.errors import Poison
from hapax.core.records import Output, Record
from hapax.core.results import Failure
from hapax.processing.transform import Transformer, identity, load_form
from hapax.transforms.json_values import json_validate, rekey_by_json, split_json_array
from hapax.transforms.records import drop_tombstones

JSON = st.recursive(  # small: the bytes matter here, not the depth
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
NO_JSON = [None, b"", b"{", b'{"a": NaN}', b'{"a": "\xff"}', b"\xef\xbb\xbf", b"[" * 100_000]


def of(value: bytes | None) -> Record:
    return Record("in", 0, 7, b"key", value)


def apply(function: Any, value: bytes | None) -> Any:
    return Transformer(function, 3).apply(of(value))


@pytest.mark.parametrize("value", [None, b"", b"\xff\x00"])
def test_identity_passes_every_value_on_and_only_a_tombstone_is_dropped(value):
    assert identity(of(value)) == Output(value)
    assert drop_tombstones(of(value)) == (None if value is None else Output(value))


def test_a_json_object_passes_byte_for_byte():
    value = b' {"price": 1.10000000000000000001, "a": 1, "a": 2} '
    assert json_validate(of(value)) == Output(value)


@pytest.mark.parametrize(
    ("function", "value"),
    [
        *((json_validate, value) for value in (*NO_JSON, b"[]", b"1", b'"{}"', b"null")),
        *((split_json_array, value) for value in (*NO_JSON, b"{}", b"1", b'[1, "\xff"]')),
        (split_json_array, b"[1] 2"),
    ],
)
def test_what_is_no_json_object_or_array_is_poison_at_once_and_leaves_no_output(function, value):
    failure = apply(function, value)
    assert isinstance(failure, Failure)
    assert (failure.reason, failure.attempts) == ("Poison", 1)


def test_a_byte_order_mark_before_the_json_is_passed_over_as_where_ids_are_read():
    one, several = b'\xef\xbb\xbf{"id": 1}', b'\xef\xbb\xbf[{"id": 1}]'
    assert json_validate(of(one)) == Output(one)
    assert rekey_by_json("id")(of(one)) == Output(one, key=b"1")
    assert list(split_json_array(of(several))) == [Output(b'{"id": 1}')]


@given(st.lists(JSON, max_size=5))
def test_an_array_leaves_as_its_elements_in_order(elements):
    outputs = list(split_json_array(of(json.dumps(elements, ensure_ascii=False).encode())))
    assert [json.loads(output.value or b"") for output in outputs] == elements


def test_elements_keep_their_bytes_and_an_empty_array_is_filtered():
    assert apply(split_json_array, b'[ 1.10000000000000000001 , {"b":1,"a":[]} ]') == (
        Output(b"1.10000000000000000001"),
        Output(b'{"b":1,"a":[]}'),
    )
    assert apply(split_json_array, b"[]") == ()


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (b'{"order": {"id": "\xc3\xa4-1"}}', "ä-1".encode()),
        (b'{"order": {"id": 0}}', b"0"),
        (b'{"order": {"id": -12}, "id": 3}', b"-12"),
    ],
)
def test_a_field_becomes_the_key_and_the_value_stays(value, key):
    assert rekey_by_json("order", "id")(of(value)) == Output(value, key=key)


@pytest.mark.parametrize(
    "value",
    [
        *NO_JSON,
        b"{}",
        b'{"order": 5}',
        b'{"order": {"id": ""}}',
        b'{"order": {"id": null}}',
        b'{"order": {"id": true}}',
        b'{"order": {"id": 1.5}}',
        b'{"order": [{"id": 1}]}',
    ],
)
def test_without_a_field_that_can_be_a_key_a_record_is_poison_and_one_of_no_field_refused(value):
    with pytest.raises(Poison):
        rekey_by_json("order", "id")(of(value))
    with pytest.raises(ValueError, match="name of a field"):
        rekey_by_json()


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("hapax.transforms.records:identity", identity),
        ("hapax.transforms.records:drop_tombstones", drop_tombstones),
        ("hapax.transforms.json_values:json_validate", json_validate),
        ("hapax.transforms.json_values:split_json_array", split_json_array),
    ],
)
def test_built_in_transforms_are_found_by_their_names(name, function):
    assert load_form(name).function is function
