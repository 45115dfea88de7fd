"""A pipeline as the service runs it: a process of its own, killed and asked to stop."""

import json
import random
import urllib.request

import pytest

from hapax.sandbox import SandboxTopic
from hapax.sandbox.processes import Ports
from tests.kit import topics
from tests.kit.pipeline_chaos import run
from tests.kit.pipeline_process import environment, pipeline_process
from tests.kit.proof import at_length, rounds
from tests.kit.waiting import await_


@pytest.mark.row("SP5")
@pytest.mark.long
@pytest.mark.rounds
@at_length
def test_windows_without_doubles_come_out_once_through_kills(sandbox, unique, tmp_path):
    records = rounds(5000, 8000)
    outcome = run(
        sandbox,
        unique("windows"),
        tmp_path,
        records=records,
        strikes=["all", "jvm"],
        rng=random.Random(7),
        batch_max=1500,
    )
    assert outcome.lost == []
    assert outcome.doubled == []
    assert len(outcome.expected) == records // 20
    assert outcome.batches > 5


@pytest.mark.row("SP5")
@pytest.mark.long
@pytest.mark.rounds
@at_length
def test_windows_in_parts_come_out_once_through_kills(sandbox, unique, tmp_path):
    app, records = unique("parts"), rounds(5000, 8000)
    outcome = run(
        sandbox,
        app,
        tmp_path,
        records=records,
        strikes=["worker", "all"],
        rng=random.Random(8),
        batch_max=1500,
        in_parts=True,
    )
    assert outcome.lost == []
    assert outcome.doubled == []
    assert len(outcome.expected) == records // 20
    markers = topics.committed(sandbox.bootstrap_servers, f"{app}--sink/0", f"{app}-out")
    assert markers[0] is not None, "all was so little that it was published together"


@pytest.mark.row("SP4", "SP27")
def test_a_pipeline_is_ready_tells_its_numbers_and_stops_when_asked(sandbox, unique, tmp_path):
    given, out, servers = unique("in"), unique("out"), sandbox.bootstrap_servers
    sandbox.create_topics(SandboxTopic(given, 2), SandboxTopic(out))
    topics.produce(servers, given, *(b"%d" % number for number in range(100)))
    ports = Ports()
    port = ports.reserve()
    values = environment(sandbox, out, given, out, tmp_path / "c", HAPAX_TELEMETRY__PORT=str(port))
    driver = pipeline_process(tmp_path, values)
    driver.start()
    try:
        await_(lambda: bool(driver.lines("micro_batch_completed")), 120, driver.text)
        metrics = _got(port, "/metrics")
        ready = _got(port, "/readyz")
        code = driver.terminate()
        driver.await_gone()
    finally:
        driver.close()
        ports.close()
    assert code == 0
    assert json.loads(ready)["ok"] is True
    (line,) = driver.lines("micro_batch_completed")
    assert line["inputs"] == {given: 100}
    assert line["outputs"] == {out: 100}
    assert f'hapax_records_produced_total{{topic="{out}"}} 100.0' in metrics
    assert 'hapax_micro_batches_total{outcome="published"} 1.0' in metrics
    assert len(topics.read_back(servers, out)) == 100
    elsewhere = values | {"HAPAX_SPARK__CHECKPOINT": str(tmp_path / "other")}
    other = pipeline_process(tmp_path, elsewhere, "other")
    other.start()
    other.ends_with(6)
    assert "the checkpoint was lost or is another one" in other.text()


def _got(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return str(answer.read(), "utf-8")
