"""Events of CloudEvents as SDKs write them, and as they should not come.

kit/cloud_events.jsonl was written by the SDKs themselves: each line names SDK, version and form.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from hapax import Output
from hapax.core.headers import ID
from hapax.core.identity import Identity
from hapax.core.records import Headers, Record
from hapax.testing import Pipeline

LINES = (Path(__file__).parents[1] / "kit" / "cloud_events.jsonl").read_text().splitlines()
FORMS: list[dict[str, Any]] = [json.loads(line) for line in LINES]
CLAIM = b"cloudevents\0/shop\x007"
EVENT = b'{"specversion": "1.0", "id": "7", "source": "/shop", "type": "t", "data": {}}'
CHAINS = [["cloudevents"], ["cloudevents", "header:message-id"], ["cloudevents", "key"]]


def claim_of(record: Record, chain: list[str]) -> bytes:
    found = Identity(chain, claimed=True).identify([record])
    assert not found.poison
    return found.claims[0]


def record(value: bytes | None, headers: Headers = (), key: bytes | None = b"k") -> Record:
    return Record("in", 0, 0, key, value, headers)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("form", FORMS, ids=lambda one: f"{one['version']} {one['form']}")
def test_an_event_as_an_sdk_writes_it_is_named_by_source_and_id(form, chain):
    headers = tuple((name, value.encode()) for name, value in form["headers"])
    key = None if form["key"] is None else form["key"].encode()
    assert claim_of(record(form["value"].encode(), headers, key), chain) == CLAIM


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
        one = record(before + EVENT, (("Content-Type", content_type),))
        assert claim_of(one, chain) == CLAIM


def test_headers_with_a_dash_name_an_event_and_those_with_an_underscore_come_first():
    dashes: Headers = (("ce-id", b"7"), ("CE-Source", b"/shop"))
    assert claim_of(record(b"x", dashes), ["cloudevents"]) == CLAIM
    assert claim_of(record(b"x", (("ce_id", b"7"), dashes[1])), ["cloudevents"]) == CLAIM
    both = (("ce-id", b"8"), ("ce_id", b"7"), *dashes[1:])
    assert claim_of(record(b"x", both), ["cloudevents"]) == CLAIM


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
    assert claim_of(record(value), ["cloudevents"]) == b""


def test_the_id_that_a_header_names_stays_as_it_is():
    one = record(EVENT, (("message-id", b"m"),))
    assert claim_of(one, ["cloudevents", "header:message-id"]) == b"header:message-id\0m"
    assert claim_of(one, ["cloudevents", "key"]) == CLAIM


BATCHES = [
    record(b"[%b]" % EVENT, (("content-type", b"application/cloudevents-batch+json"),)),
    record(b"[%b, %b]" % (EVENT, EVENT)),
    record(b"[]", (("Content-Type", b"Application/CloudEvents-Batch+JSON; charset=utf-8"),)),
    record(b"\x0fbytes", (("content-type", b"application/cloudevents+avro"),)),
    record(b"<event/>", (("content-type", b"application/cloudevents+xml"),)),
]


@pytest.mark.parametrize("one", BATCHES)
@pytest.mark.parametrize("chain", ["cloudevents", "cloudevents+key", "header:message-id"])
def test_events_whose_ids_cannot_be_claimed_are_refused(one, chain):
    chains = [chain] if chain.startswith("cloud") else [chain, "cloudevents"]
    (poison,) = Identity(chains, claimed=True).identify([one]).poison.values()
    assert "HAPAX_DEDUP__ID" in str(poison)


@pytest.mark.parametrize("one", BATCHES)
def test_they_pass_where_the_whole_has_an_id_or_nothing_is_claimed(one):
    assert claim_of(one, ["cloudevents", "key"]) == b"key\0k"
    assert not Identity(["cloudevents"]).identify([one]).poison
    assert not Identity(["key"], claimed=True).identify([record(one.value, key=None)]).poison


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
