"""Workers at work, workers that must leave, records with ids, and what came of them."""

from typing import Any, TypeVar

from confluent_kafka.admin import AdminClient, PartitionMetadata

from hapax.sandbox.broker import metadata_client
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given
from tests.kit.waiting import WORDS_MAX, await_, patient

Worker = TypeVar("Worker", bound=WorkerProcess)
QUICK: dict[str, Any] = {"GROUP__SESSION_TIMEOUT": "6s", "TRANSACTION__TIMEOUT": "4s"}
"""Names after ``HAPAX_``: as a route takes them."""
LEAVES_WITHIN_S = 15


def at_work(worker: Worker, more: int = 1) -> Worker:
    """Return it after so many transactions more; a process that has left never comes to them."""
    settled = committed(worker)
    await_(lambda: not worker.running or committed(worker) >= settled + more, 120, worker.text)
    assert worker.running, worker.text()
    return worker


def committed(worker: WorkerProcess) -> int:
    """Return how many transactions its log has: a line of it may stand for those of a second."""
    return sum(int(str(line["transactions"])) for line in worker.lines("transaction_committed"))


def await_told(worker: WorkerProcess, event: str, times: int = 1, within_s: float = 60) -> None:
    """Wait until the log holds an event so many times; fail at once when the worker is gone."""
    await_(lambda: not worker.running or len(worker.lines(event)) >= times, within_s, worker.text)
    exit_code = None if worker.running else worker.process.returncode
    assert len(worker.lines(event)) >= times, f"exit code {exit_code}: {worker.text()[-WORDS_MAX:]}"


def await_exit(worker: WorkerProcess, code: int, *words: str, within_s: float = 60) -> str:
    """Wait for the exit; the reason holds ``words``. Return the reason."""
    await_(lambda: not worker.running, within_s, worker.text)
    worker.ends_with(code)
    assert "Traceback" not in worker.text(), worker.text()
    (stopped,) = worker.lines("service_stopped")[-1:]
    reason = str(stopped["reason"])
    for word in words:
        assert word in reason, reason
    return reason


def refused(route: PipelineUnderTest, code: int, *words: str, **settings: str | None) -> str:
    """Start a worker that must leave by itself; return all it said (see ``left``)."""
    return left(route.worker("w-0", **settings), code, *words)


def left(worker: WorkerProcess, code: int, *words: str) -> str:
    """Wait for its exit; its reasons, without the list of all settings, hold ``words``."""
    assert worker.process.wait(LEAVES_WITHIN_S) == code, worker.text()
    text = worker.text()
    reasons = [line for line in text.splitlines() if '"service_started"' not in line]
    for word in words:
        assert any(word in line for line in reasons), text
    assert not worker.lines("service_crashed"), text
    if not isinstance(worker, SparkProcess):  # PySpark itself prints some when it is ended
        assert "Traceback" not in text
    return text


def untouched(route: PipelineUnderTest) -> bool:
    """Whether nothing has had an effect; offset 0 may be committed, with a mark (suspicion.py)."""
    done = {offset for offset in route.committed().values() if offset}
    return (done, route.outputs(), route.dead()) == (set(), [], [])


def numbers(*spans: range) -> list[bytes]:
    return [b"%d" % number for span in spans for number in span]


TEN = numbers(range(10))


def event(number: int, value: bytes = b"", partition: int = -1) -> Given:
    """Return a record that carries an id; the same number is the same event."""
    name = b"event-%d" % number
    return Given(value or name, name, (("message-id", name),), partition)


def values(route: PipelineUnderTest) -> list[bytes]:
    return sorted(record.value or b"" for record in route.outputs())


def admin(route: PipelineUnderTest) -> AdminClient:
    return metadata_client(route.bootstrap)


@patient
def partitions_known(route: PipelineUnderTest, topic: str) -> dict[int, PartitionMetadata]:
    known: dict[int, PartitionMetadata] = (
        admin(route).list_topics(topic, timeout=10).topics[topic].partitions
    )
    return known


def delete_topic(bootstrap_servers: str, topic: str) -> None:
    """Delete a topic; return when no broker knows it any more."""
    client = metadata_client(bootstrap_servers)
    client.delete_topics([topic], operation_timeout=30)[topic].result(30)
    await_(lambda: topic not in client.list_topics(timeout=10).topics, 30, lambda: "still there")
