"""Change events as Debezium writes them, and the ids that docs/change-data-capture.md names.

kit/foreign/changes.jsonl: Debezium 3.6.1, PostgreSQL 15.18; ``run`` 2: sent again after a kill.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from hapax.core.records import Output, Record
from hapax.operations.claims import ClaimSources
from hapax.processing.identity import Identity
from hapax.processing.plan import Destinations, Planner

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "tests/kit/foreign/changes.jsonl").read_text().splitlines()
CHANGES: list[dict[str, Any]] = [json.loads(line) for line in LINES]
ROWS = "json:/source/schema+json:/source/table+json:/source/lsn+json:/op+key"
RECOMMENDED = {
    "rows": ROWS,
    "transactions": ROWS,
    "schemas": ROWS.replace("json:/", "json:/payload/"),
    "outbox": "header:id",
}
NOT_UNIQUE = [
    *("json:/source/lsn", "json:/source/sequence", "json:/source/txId", "key"),
    *("json:/source/lsn+json:/op+key", "json:/transaction/id"),
]


def of(form: str, run: int = 1) -> list[dict[str, Any]]:
    return [one for one in CHANGES if (one["form"], one["run"]) == (form, run)]


def ids(changes: list[dict[str, Any]], source: str) -> list[bytes]:
    records = [
        Record(
            one["topic"],
            0,
            offset,
            None if one["key"] is None else one["key"].encode(),
            None if one["value"] is None else one["value"].encode(),
            tuple((name, value.encode()) for name, value in one["headers"]),
        )
        for offset, one in enumerate(changes)
    ]
    found = Identity([source], claimed=True).identify(records)
    assert not found.poison
    return list(found.claims)


@pytest.mark.parametrize("form", ["rows", "transactions", "schemas", "outbox"])
def test_every_change_with_key_and_value_has_an_id_of_its_own(form):
    changes = of(form)
    keyed = [one for one in changes if one["key"] is not None and one["value"] is not None]
    found = [one for one in ids(changes, RECOMMENDED[form]) if one]
    assert len(found) == len(set(found)) == len(keyed) > 1


def test_tombstones_truncations_and_rows_without_a_key_have_none():
    for change, found in zip(of("rows"), ids(of("rows"), ROWS), strict=True):
        assert (found == b"") == (change["key"] is None or change["value"] is None)


@pytest.mark.parametrize("source", NOT_UNIQUE)
def test_what_the_page_calls_not_unique_names_several_changes(source):
    found = [one for one in ids(of("transactions"), source) if one]
    assert len(set(found)) < len(found)
    assert f"`{source}`" in (ROOT / "docs/change-data-capture.md").read_text()


def test_rows_of_two_tables_share_position_operation_and_key_in_a_snapshot():
    found = ids(of("rows"), "json:/source/lsn+json:/op+key")
    topics: dict[bytes, set[str]] = {}
    for change, one in zip(of("rows"), found, strict=True):
        topics.setdefault(one, set()).add(change["topic"])
    assert {"shop.shop.customers", "shop.shop.orders"} in list(topics.values())


def test_id_of_a_transaction_and_order_are_unique_but_for_the_snapshot():
    source = "json:/transaction/id+json:/transaction/total_order"
    changes = of("transactions")
    found = ids(changes, source)
    assert len({one for one in found if one}) == len([one for one in found if one])
    snapshot = [one for one, each in zip(found, changes, strict=True) if '"op":"r"' in str(each)]
    assert set(snapshot) == {b""}


def test_what_is_sent_again_after_a_kill_has_the_same_ids():
    again = ids(of("rows", 2), ROWS)
    assert len(again) > 30
    assert again == ids(of("rows"), ROWS)[-len(again) :]


def test_unwrapped_rows_of_two_tables_share_position_operation_and_key():
    found = [one for one in ids(of("unwrap"), "json:/__source_lsn+json:/__op+key") if one]
    assert len(set(found)) < len(found)


def test_the_page_recommends_these():
    page = (ROOT / "docs/change-data-capture.md").read_text()
    assert all(source in page for source in RECOMMENDED.values())


RECORDS = {
    "header:message-id": Record("in", 0, 5, None, b"{}", (("Message-Id", b"e-1"),)),
    "cloudevents": Record("in", 0, 5, None, b"{}", (("ce_source", b"/s"), ("ce_id", b"1"))),
    "key": Record("in", 0, 5, b"\xffkey", b"{}"),
    "json:/order/id": Record("in", 0, 5, None, b'{"order": {"id": 17}}'),
    "json:/a~1b/0": Record("in", 0, 5, None, '{"a/b": ["ä"]}'.encode()),
    "header:hapax-id": Record(
        "in", 0, 5, None, b"{}", (("hapax-id", b"up"), ("hapax-part", b"1/2"))
    ),
}


def output_of(record: Record, chain: list[str], output: Output) -> tuple[Record, bytes, bytes]:
    found = Identity(chain).identify([record])
    planner = Planner(Destinations("app", "out", "dead"))
    (message,) = planner.plan([record], found.ids, [(output,)], {}).messages
    written = Record("out", 0, 0, message.key, message.value, tuple(message.headers))
    return written, dict(message.headers)["hapax-id"] or b"", found.claims[0]


@pytest.mark.parametrize("source", RECORDS)
def test_of_a_single_source_the_claim_is_known_whatever_the_transform_wrote(source):
    written, event_id, claim = output_of(RECORDS[source], [source], Output(b"other", key=b"other"))
    assert claim
    assert ClaimSources([source]).claim_of(written, event_id) == claim
    assert ClaimSources([source]).candidates(event_id) == {source: claim}


@pytest.mark.parametrize("source", ["header:message-id", "cloudevents", "key"])
def test_sources_that_are_headers_prove_themselves_or_rule_themselves_out(source):
    chain = ["cloudevents", "header:message-id", "key"]
    written, event_id, claim = output_of(RECORDS[source], chain, Output(b"other", key=b"other"))
    assert ClaimSources(chain).claim_of(written, event_id) == claim


@pytest.mark.parametrize(
    "chain", [["json:/order/id", "key"], ["json:/order/id", "header:message-id"]]
)
def test_an_id_that_two_sources_may_have_given_is_not_guessed(chain):
    record = Record("in", 0, 5, b"17", b'{"order": {"id": 17}}', (("message-id", b"17"),))
    written, event_id, claim = output_of(record, chain, Output(b"other"))
    assert claim
    assert ClaimSources(chain).claim_of(written, event_id) is None


def test_a_structured_event_may_have_lost_its_id_on_the_way():
    headers = (("content-type", b"application/cloudevents+json"),)
    record = Record("in", 0, 5, None, b'{"id": "1", "source": "/s"}', headers)
    for chain in (["cloudevents"], ["cloudevents", "key"]):
        written, event_id, claim = output_of(record, chain, Output(b"no json"))
        known = ClaimSources(chain).claim_of(written, event_id)
        assert known == (claim if len(chain) == 1 else None)


def test_an_id_that_a_source_could_never_give_has_no_claim_there():
    sources = ClaimSources(["cloudevents", "json:/id", "key"])
    assert set(sources.candidates(b"\xff")) == {"key"}
    assert set(sources.candidates(b"s\x00i")) == {"cloudevents", "json:/id", "key"}


def test_of_an_id_with_several_parts_the_claim_is_known():
    source = "json:/source/lsn+json:/op+key"
    record = Record("in", 0, 5, b"+%", b'{"source": {"lsn": 1}, "op": "r"}')
    written, event_id, claim = output_of(record, [source], Output(b"other", key=b"other"))
    assert event_id == b"1+r+%2B%25"
    assert ClaimSources([source]).claim_of(written, event_id) == claim
    assert ClaimSources([source, "key"]).claim_of(written, event_id) is None
    assert ClaimSources([source]).candidates(b"1+r") == {}
    assert ClaimSources(["header:a+header:b"]).claim_of(written, b"1+r") is None
