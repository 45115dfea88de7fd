"""Step 2: where an event's id is found, and what keeps two events apart."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from hapax import Output
from hapax.core.errors import Poison
from hapax.core.headers import ID, without_hapax
from hapax.core.json_pointer import JsonPointer
from hapax.core.record_path import Identified
from hapax.core.records import Coordinates, Headers, Record
from hapax.processing.identity import Identity
from hapax.testing import Pipeline


def record(
    value: bytes | None = b"v", *, key: bytes | None = None, headers: Headers = ()
) -> Record:
    return Record("in", 0, 7, key, value, headers)


def found(sources: list[str], *records: Record) -> Identified:
    return Identity(sources, inputs=["in"]).identify(records)


def id_of(sources: list[str], one: Record) -> bytes:
    answer = found(sources, one)
    assert not answer.poison
    return answer.ids[0]


CE: Headers = (("ce_id", b"7"), ("ce_source", b"/shop"))


def test_header_names_are_compared_without_case_on_both_sides_and_an_exact_one_wins():
    assert id_of(["header:Message-ID"], record(headers=(("message-id", b"m1"),))) == b"m1"
    assert id_of(["header:message-id"], record(headers=(("Message-Id", b"m1"),))) == b"m1"
    for headers in ((("ID", b"no"), ("id", b"yes")), (("id", b"yes"), ("Id", b"no"))):
        assert id_of(["header:id"], record(headers=headers)) == b"yes"


def test_any_number_of_header_names_may_come():
    identity = Identity(["header:id"])
    for turn in range(3000):
        (event_id,) = identity.identify([record(headers=((f"n{turn}", b""), ("Id", b"x")))]).ids
        assert event_id == b"x"


@pytest.mark.parametrize(
    "headers", [(("ce_id", b"7"),), (("ce_source", b"/shop"),), (("ce_id", b""), CE[1])]
)
def test_half_a_cloudevent_has_no_id(headers):
    assert id_of(["cloudevents"], record(headers=headers)) == b""


@pytest.mark.parametrize(
    ("pointer", "value", "event_id"),
    [
        ("/id", b'{"id": "x"}', b"x"),
        ("/order/id", b'{"order": {"id": "x"}}', b"x"),
        ("/a~1b/m~0n", b'{"a/b": {"m~n": "x"}}', b"x"),
        ("/~01", b'{"~1": "x"}', b"x"),
        ("/list/1", b'{"list": ["a", "b"]}', b"b"),
        ("/0/id", b'[{"id": "x"}]', b"x"),
        ("/", b'{"": "x"}', b"x"),
        ("/id", b'{"id": "\xc3\xa4"}', b"\xc3\xa4"),
        *(("/id", value, b"") for value in (b"{}", b'"text"', b"[1]", None)),
        *((f"/{token}", b'["a", "b"]', b"") for token in ("2", "-1", "x", "1.0")),
    ],
)
def test_a_json_pointer_names_the_event_and_one_that_leads_nowhere_none(pointer, value, event_id):
    assert id_of([f"json:{pointer}"], record(value)) == event_id


@pytest.mark.parametrize("value", [b"not json", b"\xff\xfe", b'{"id": "\xff"}', b"", b"[" * 9999])
def test_a_value_that_is_not_json_is_poison_only_when_its_source_is_reached(value):
    chain = ["header:id", "json:/id"]
    assert list(found(chain, record(value)).poison) == [0]
    assert "not JSON" in str(found(chain, record(value)).poison[0])
    assert id_of(chain, record(value, headers=(("id", b"x"),))) == b"x"


def test_a_number_too_long_for_python_is_poison_or_an_id_but_never_an_error():
    answer = found(["json:/id"], record(b'{"id": ' + b"9" * 5000 + b"}"))
    assert answer.poison or answer.ids[0]


@pytest.mark.parametrize("empty", [b"", None])
def test_the_first_source_in_the_chain_that_finds_an_id_wins_and_an_empty_one_is_none(empty):
    both = record(key=b"k", headers=(("id", b"h"),))
    assert id_of(["header:id", "key"], both) == b"h"
    assert id_of(["key", "header:id"], both) == b"k"
    one = record(key=b"k", headers=(("id", empty),))
    assert id_of(["header:id", "key"], one) == b"k"
    assert found(["header:id"], one).claims == [b""]


RECORD = record(b'{"order": {"id": 42}}', key=b"k-1", headers=(("message-id", b"m-1"), *CE))


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        ("header:message-id", b"header:message-id\0m-1"),
        ("header:MESSAGE-id", b"header:message-id\0m-1"),
        ("json:/order/id", b"json:/order/id\x0042"),
        ("key", b"key\0k-1"),
        ("cloudevents", b"cloudevents\0/shop\x007"),
    ],
)
def test_the_bytes_that_are_claimed_are_a_contract_between_versions(source, claim):
    assert found([source], RECORD).claims == [claim]


def test_behind_another_pipeline_id_and_part_name_the_event():
    headers: Headers = (("hapax-id", b"e"), ("hapax-part", b"1/2"))
    assert id_of(["header:hapax-id"], record(headers=headers)) == b"e\0" + b"1/2"
    assert id_of(["header:hapax-id"], record(headers=headers[:1])) == b"e"
    assert id_of(["header:hapax-id"], record(headers=headers[1:])) == b""


def test_a_replay_names_the_coordinates_of_its_original_in_one_of_the_own_inputs():
    answer = found(["key"], record(key=b"k", headers=(("hapax-replay-of", b"in/3/9"),)))
    assert answer.replays == {0: Coordinates("in", 3, 9)}
    assert answer.ids == [b"k"]
    answer = found(["key"], record(key=b"k", headers=(("hapax-replay-of", b"made-up/0/1"),)))
    assert "must name a record of HAPAX_INPUT__TOPICS" in str(answer.poison[0])
    assert (answer.claims, answer.replays) == ([b""], {})


@pytest.mark.parametrize(
    "text",
    [
        *(b"", None, b"in/3", b"in/x/9", b"\xff/1/2"),
        *(b"t/99999999999/1", b"in/2147483648/1", b"in/0/9223372036854775808"),
        "in/٣/9".encode(),
    ],
)
def test_a_replay_header_that_names_no_coordinates_of_kafka_is_poison(text):
    answer = found(["key"], record(key=b"k", headers=(("hapax-replay-of", text),)))
    assert list(answer.poison) == [0]
    assert str(answer.poison[0]) == "header hapax-replay-of must be topic/partition/offset"
    assert (answer.claims, answer.replays) == ([b""], {})


def test_poison_does_not_touch_its_neighbours():
    answer = found(["json:/id"], record(b'{"id": "a"}'), record(b"no"), record(b'{"id": "c"}'))
    assert answer.ids == [b"a", b"", b"c"]
    assert list(answer.poison) == [1]


def test_headers_of_a_hapax_before_us_are_not_passed_on():
    headers: Headers = (("a", b"1"), ("hapax-id", b"x"), ("a", b"2"), ("hapax-new", None))
    assert without_hapax(headers) == [("a", b"1"), ("a", b"2")]


CHANGE = b'{"source": {"lsn": %d}, "op": "%s", "after": {"id": %d}}'
CHANGES = ["json:/source/lsn+json:/op+key"]


def test_an_id_of_several_parts_tells_changes_of_one_lsn_apart():
    rows = [
        record(CHANGE % (lsn, op, row), key=b'{"id":%d}' % row)
        for lsn, op, row in ((1, b"r", 1), (1, b"r", 2), (2, b"d", 2), (2, b"c", 3), (1, b"r", 1))
    ]
    claims = found(CHANGES, *rows).claims
    assert len(set(claims)) == 4
    assert claims[0] == claims[4] == b'+json:/source/lsn\0json:/op\0key\x001+r+{"id":1}'


@pytest.mark.parametrize(
    "one",
    [
        record(CHANGE % (1, b"r", 1)),
        record(CHANGE % (1, b"", 1), key=b"k"),
        record(b'{"source": {"lsn": 1}}', key=b"k"),
        record(None, key=b"k"),
    ],
)
def test_an_id_that_lacks_a_part_is_none(one):
    assert id_of(CHANGES, one) == b""


def test_two_lists_of_parts_never_make_one_id():
    texts = [b"a", b"+", b"a+", b"+a", b"%", b"%2B", b"%25", b"a%2Bb", b"\0", b"++"]
    headers = [(("a", one), ("b", other)) for one in texts for other in texts]
    ids = found(["header:a+header:b"], *(record(headers=pair) for pair in headers)).ids
    assert len(set(ids)) == len(texts) ** 2


def test_parts_may_be_of_every_source_and_stand_in_a_chain():
    event = record(b'{"specversion": "1.0", "id": "7", "source": "/shop"}', key=b"k", headers=CE)
    assert id_of(["cloudevents + key"], event) == b"/shop\x007+k"
    assert id_of(["cloudevents+key"], record(event.value, key=b"k")) == b"/shop\x007+k"
    assert id_of(["header:no+key", "key"], event) == b"k"


def test_a_plus_in_a_name_is_written_twice():
    one = record(b'{"a+b": "x"}', headers=(("h+", b"y"),))
    assert id_of(["json:/a++b"], one) == b"x"
    assert found(["json:/a++b"], one).claims == [b"json:/a+b\0x"]
    assert id_of(["header:h+++json:/a++b"], one) == b"y+x"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("json:/source/lsn+/op", "/op is no source of an id"),
        ("json:/a+b", "b is no source of an id"),
        ("header:a+b", "b is no source of an id"),
        ("key+", "there is no part of an id"),
        ("+key", "there is no part of an id"),
        ("key+ +header:a", "is no source of an id"),
        ("+", "is no source of an id"),
        ("key+key", "names a part of its id twice"),
        ("header:A+header:a", "names a part of its id twice"),
        *((one, "is no source of an id") for one in ("Key", "", "keys", "header:", "json:id")),
        *((one, "is no source of an id") for one in ("json:", "xml:/id")),
    ],
)
def test_what_can_match_nothing_is_refused(source, problem):
    with pytest.raises(ValueError, match=problem):
        Identity([source])


@pytest.mark.parametrize("hides", [None, b""])
@pytest.mark.parametrize(
    "names", [("id", "id"), ("id", "Id"), ("Id", "id"), ("ID", "Id"), ("ID", "ID")]
)
def test_a_header_that_holds_nothing_hides_no_other_of_its_name(names, hides):
    one, other = names
    for headers in (((one, b"x"), (other, hides)), ((one, hides), (other, b"x"))):
        assert id_of(["header:id", "key"], record(key=b"k", headers=headers)) == b"x"


def test_of_several_headers_of_one_name_the_last_that_holds_something_counts():
    headers: Headers = (("id", b"a"), ("id", b"b"), ("id", None), ("Id", b"c"))
    assert id_of(["header:id"], record(headers=headers)) == b"b"


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
        *((one, b"") for one in ("1.5", "12345678901234567890.5", "1e-400", "true", "false")),
        *(
            (one, b"")
            for one in ("null", "{}", "[]", '[""]', '""', '"NaN"', '"Infinity"', '"-Infinity"')
        ),
        ('{"id": 1}', b""),
    ],
)
def test_text_is_itself_a_whole_number_its_digits_however_it_is_spelled_and_all_else_no_id(
    spelled, event_id
):
    claim = b"json:/id\0" + event_id if event_id else b""
    assert claim_of(f'{{"id": {spelled}}}'.encode()) == claim


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


LINES = (Path(__file__).parents[1] / "kit" / "cloud_events.jsonl").read_text().splitlines()
FORMS: list[dict[str, Any]] = [json.loads(line) for line in LINES]
CLAIM = b"cloudevents\0/shop\x007"
EVENT = b'{"specversion": "1.0", "id": "7", "source": "/shop", "type": "t", "data": {}}'
CHAINS = [["cloudevents"], ["cloudevents", "header:message-id"], ["cloudevents", "key"]]


def claim_of_event(sent: Record, chain: list[str]) -> bytes:
    found = Identity(chain, claimed=True).identify([sent])
    assert not found.poison
    return found.claims[0]


def sent(value: bytes | None, headers: Headers = (), key: bytes | None = b"k") -> Record:
    return Record("in", 0, 0, key, value, headers)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("form", FORMS, ids=lambda one: f"{one['version']} {one['form']}")
def test_an_event_as_an_sdk_writes_it_is_named_by_source_and_id(form, chain):
    headers = tuple((name, value.encode()) for name, value in form["headers"])
    key = None if form["key"] is None else form["key"].encode()
    assert claim_of_event(sent(form["value"].encode(), headers, key), chain) == CLAIM


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize(
    "content_type",
    [
        *(None, b"", b"application/json", b"text/plain", b"application/cloudevents+json"),
        *(b"application/CloudEvents+JSON", b" APPLICATION/CLOUDEVENTS+JSON ; charset=utf-8"),
    ],
)
def test_a_structured_event_is_recognised_whatever_its_content_type(content_type, chain):
    for before in (b"", b" \r\n\t", b"\xef\xbb\xbf"):
        one = sent(before + EVENT, (("Content-Type", content_type),))
        assert claim_of_event(one, chain) == CLAIM


def test_headers_with_a_dash_name_an_event_and_those_with_an_underscore_come_first():
    dashes: Headers = (("ce-id", b"7"), ("CE-Source", b"/shop"))
    assert claim_of_event(sent(b"x", dashes), ["cloudevents"]) == CLAIM
    assert claim_of_event(sent(b"x", (("ce_id", b"7"), dashes[1])), ["cloudevents"]) == CLAIM
    both = (("ce-id", b"8"), ("ce_id", b"7"), *dashes[1:])
    assert claim_of_event(sent(b"x", both), ["cloudevents"]) == CLAIM


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"{", b'"specversion"', b'{"specversion": "1.0"', b"[1]", b"[]"),
        b'{"specversion": "1.0", "id": "7"}',
        b'{"specversion": "1.0", "source": "/shop"}',
        b'{"id": "7", "source": "/shop"}',
        b'{"specversion": "1.0", "id": "", "source": "/shop"}',
        b'{"specversion": "1.0", "id": {}, "source": "/shop"}',
        b'{"data": {"specversion": "1.0", "id": "7", "source": "/shop"}}',
    ],
)
def test_what_is_no_event_has_no_id_and_is_no_poison(value):
    assert claim_of_event(sent(value), ["cloudevents"]) == b""


def test_the_id_that_a_header_names_stays_as_it_is():
    one = sent(EVENT, (("message-id", b"m"),))
    assert claim_of_event(one, ["cloudevents", "header:message-id"]) == b"header:message-id\0m"
    assert claim_of_event(one, ["cloudevents", "key"]) == CLAIM


BATCHES = [
    sent(b"[%b]" % EVENT, (("content-type", b"application/cloudevents-batch+json"),)),
    sent(b"[%b, %b]" % (EVENT, EVENT)),
    sent(b"[]", (("Content-Type", b"Application/CloudEvents-Batch+JSON; charset=utf-8"),)),
    sent(b"\x0fbytes", (("content-type", b"application/cloudevents+avro"),)),
    sent(b"<event/>", (("content-type", b"application/cloudevents+xml"),)),
]


@pytest.mark.parametrize("one", BATCHES)
def test_events_whose_ids_cannot_be_claimed_are_refused_but_where_the_whole_has_one(one):
    for chain in (["cloudevents"], ["cloudevents+key"], ["header:message-id", "cloudevents"]):
        (poison,) = Identity(chain, claimed=True).identify([one]).poison.values()
        assert "HAPAX_DEDUP__ID" in str(poison)
    assert claim_of_event(one, ["cloudevents", "key"]) == b"key\0k"
    assert not Identity(["cloudevents"]).identify([one]).poison
    assert not Identity(["key"], claimed=True).identify([sent(one.value, key=None)]).poison


def test_in_a_pipeline_each_event_leaves_once_and_a_batch_is_a_dead_letter():
    settings = {"HAPAX_DEDUP__REDIS_URL": "redis://here:6379/0"}
    pipeline = Pipeline(lambda one: Output(one.value), settings)
    for form in FORMS:
        headers = [(name, value.encode()) for name, value in form["headers"]]
        pipeline.send(form["value"].encode(), headers=headers)
    pipeline.send(BATCHES[1].value)
    result = pipeline.run()
    assert [dict(one.headers)[ID] for one in result.outputs] == [b"/shop\x007"]
    (letter,) = result.dead_letters
    assert "it is a batch of CloudEvents" in letter.error
