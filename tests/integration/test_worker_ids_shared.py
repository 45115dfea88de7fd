"""Change data and CloudEvents as they come: what names an event, and what only seems to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.pipeline_under_test import Done, PipelineUnderTest, header, source
from tests.kit.topics import Given

if TYPE_CHECKING:
    from hapax.sandbox import Sandbox

SDK_FORMS = (Path(__file__).parents[1] / "kit" / "cloud_events.jsonl").read_text().splitlines()


def change(row: int, lsn: int, op: str, *, snapshot: bool = False) -> Given:
    """Return a change as Debezium 3.6.1 wrote it for PostgreSQL: no field is an id of its own."""
    image = {"id": row, "name": f"n{row}"}
    value = {
        "before": image if op == "d" else None,
        "after": None if op == "d" else image,
        "source": {
            "connector": "postgresql",
            "snapshot": "true" if snapshot else "false",
            "sequence": f'[null,"{lsn}"]',
            "table": "orders",
            "txId": 744 + lsn,
            "lsn": lsn,
        },
        "transaction": None,
        "op": op,
    }
    return Given(json.dumps(value).encode(), b'{"id":%d}' % row)


CHANGES = [
    *(change(row, 100, "r", snapshot=True) for row in (1, 2, 3, 4)),
    *(change(row, 200, "c") for row in (5, 6, 7)),  # of one COPY
    *(change(4, 300, "d"), Given(None, b'{"id":4}'), change(40, 300, "c")),  # a key that changed
    *(change(row, 400 + row, "c") for row in (8, 9, 10)),
]


def piped(sandbox: Sandbox, folder: Path, ids: str, **more: Any) -> PipelineUnderTest:
    route = PipelineUnderTest(
        sandbox, folder, DEDUP__REDIS_URL=sandbox.redis_url, DEDUP__ID=ids, **more
    )
    route.create()
    return route


@pytest.mark.row("R10")
def test_changes_of_one_lsn_leave_once_each_by_an_id_of_several_parts(sandbox, tmp_path):
    route = piped(sandbox, tmp_path, "json:/source/lsn+json:/op+key")
    route.write(*CHANGES, *CHANGES)  # a connector that was restarted sends them again
    done = Done(route, route.run_to_end())
    tombstones = [8, 8 + len(CHANGES)]
    assert [source(one) for one in route.outputs()] == [*range(len(CHANGES)), tombstones[1]]
    assert done.sum("duplicates") == len(CHANGES) - 1
    assert done.sum("without_id") == len(tombstones)
    assert '"id_on_different_keys"' not in done.worker.text()
    assert '"ids_missing"' not in done.worker.text()
    route.close()


@pytest.mark.parametrize("fast", ["off", "auto"])
def test_an_id_that_events_share_is_named_at_the_first_of_them(sandbox, tmp_path, fast):
    route = piped(sandbox, tmp_path, "json:/source/lsn", FAST=fast)
    route.write(*CHANGES)
    worker = route.run_to_end()
    (line,) = [one for one in worker.text().splitlines() if '"id_on_different_keys"' in one]
    told = json.loads(line)
    assert (told["record"], told["other"]) == (f"{route.source}/0/0", f"{route.source}/0/1")
    assert "HAPAX_DEDUP__ID" in told["hint"]
    route.close()


def test_most_records_without_an_id_are_told_once(sandbox, tmp_path):
    route = piped(sandbox, tmp_path, "json:/source/id", TRANSACTION__RECORDS_MAX="5")
    route.write(*CHANGES, *CHANGES)
    worker = route.run_to_end()
    (line,) = [one for one in worker.text().splitlines() if '"ids_missing"' in one]
    told = json.loads(line)
    assert told["records"] == told["of"] >= 10
    route.close()


@pytest.mark.parametrize("fast", ["off", "auto"])
def test_events_of_every_sdk_leave_once_and_a_batch_is_refused(sandbox, tmp_path, fast):
    forms = [json.loads(line) for line in SDK_FORMS]
    sent = []
    for number, form in enumerate(forms):
        renamed = [(name, value.replace("/shop", f"/{number}")) for name, value in form["headers"]]
        value = form["value"].replace("/shop", f"/{number}").encode()
        key = None if form["key"] is None else form["key"].encode()
        sent.append(Given(value, key, tuple((name, text.encode()) for name, text in renamed)))
    batch = Given(b'[{"specversion":"1.0","id":"1","source":"/s","type":"t"}]')
    route = piped(sandbox, tmp_path, "cloudevents,header:message-id", FAST=fast)
    route.write(*sent, *sent, batch)
    done = Done(route, route.run_to_end())
    assert [source(one) for one in route.outputs()] == list(range(len(forms)))
    assert done.sum("duplicates") == len(forms)
    (letter,) = route.dead()
    assert "it is a batch of CloudEvents" in header(letter, "hapax-error")
    route.close()
