"""Change events as Debezium writes them, and the ids that docs/change-data-capture.md names.

kit/foreign/changes.jsonl: Debezium 3.6.1, PostgreSQL 15.18; ``run`` 2: sent again after a kill.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from hapax.core.identity import Identity
from hapax.core.records import Record

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
