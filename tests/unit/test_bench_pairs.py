"""What the small benchmarks make of a run: ratios of a pair, steps and stalls from log lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bench import pairs, steps
from bench.contenders import Service

if TYPE_CHECKING:
    from pathlib import Path


def line(records: int, **phases_ms: float) -> str:
    phases = dict.fromkeys(steps.STEPS, 0.0) | phases_ms
    return json.dumps(
        {"event": "transaction_committed", "records": records, "phases_ms": phases}
    ).replace(": ", ":")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "run-1.log"
    lines = [line(10, claim=2.0, commit=3.0), "no JSON", line(30, claim=1.0, send_offsets=500.0)]
    path.write_text("\n".join(lines))
    return path


def test_the_time_for_claims_is_that_of_all_batches_for_a_record(log):
    spent = pairs.phases(log)
    assert spent["claim"] / spent["records"] == 3.0 / 40
    assert spent["batches"] == 2


def test_a_stall_is_named_by_the_step_that_took_most_of_it(log):
    run, stalls = steps.of_batches(log)
    assert stalls == {"send_offsets": 1}
    assert run["all p99"] == 501.0


def test_ratios_are_taken_within_a_pair_and_not_of_medians():
    servers = ("broker_cpu_s_per_million", "redis_cpu_s_per_million")
    keys = ("cpu_s_per_million", "records_per_s", "wait_us", *servers)
    one = [dict.fromkeys(keys, value) for value in (1.0, 20.0, 300.0)]
    other = [dict.fromkeys(keys, value) for value in (2.0, 10.0, 300.0)]
    assert pairs.table({"one": one, "other": other})[-1].split("|")[2] == "1.00 (0.50-2.00)"


def test_the_service_without_a_batch_ahead_is_started_through_the_benchmark():
    first, second = pairs.PAIRS["overlap"]
    assert isinstance(first, Service)
    assert isinstance(second, pairs.Alone)
    assert first.command[-1] == "hapax"
    assert second.command[-2:] == ["bench.pairs", pairs.ALONE]
    assert first.claims
    assert second.claims
