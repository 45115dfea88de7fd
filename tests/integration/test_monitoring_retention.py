"""A topic is about to lose records that nobody has read: told while there is time."""

import time

from hapax.sandbox import monitoring
from tests.kit.claim_stores import redis_server
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.probes import ready
from tests.kit.prometheus import firing, impatient_rules
from tests.kit.topics import Given
from tests.kit.waiting import await_

ALERTS = {"HapaxRetentionHalfUsed", "HapaxRecordsAboutToBeDeleted"}
MINUTE_MS = 60_000
PATIENCE_S = 90.0


def test_records_that_retention_will_delete_in_minutes_are_told_until_they_are_read(
    sandbox, tmp_path
):
    with (
        redis_server(tmp_path / "redis") as redis,
        monitoring(rules=impatient_rules(tmp_path)) as prometheus,
    ):
        port = prometheus.environment()["HAPAX_TELEMETRY__PORT"]
        route = PipelineUnderTest(
            sandbox,
            tmp_path,
            DEDUP__REDIS_URL=redis.url,
            TELEMETRY__PORT=port,
            TELEMETRY__LAG_INTERVAL="1s",
            TRANSFORM=None,
        )
        route.create(source={"retention.ms": str(60 * MINUTE_MS)})
        worker = route.worker()
        try:
            await_(lambda: ready(int(port))[0], PATIENCE_S, worker.text)
            redis.kill()
            written_ms = int(time.time() * 1000) - 50 * MINUTE_MS
            named = (("message-id", b"1"),)  # without an id nobody asks for a claim
            route.write(Given(b"old", headers=named, timestamp_ms=written_ms))
            await_(lambda: firing(prometheus.url).keys() >= ALERTS, PATIENCE_S, worker.text)
            alert = firing(prometheus.url)["HapaxRecordsAboutToBeDeleted"]
            assert alert["labels"]["topic"] == route.source
            assert 0 < float(alert["value"]) < 11 * 60

            redis.start()
            await_(lambda: not ALERTS & firing(prometheus.url).keys(), PATIENCE_S, worker.text)
            route.await_outputs(1, PATIENCE_S)
            assert [one.value for one in route.outputs()] == [b"old"]
        finally:
            route.close()
