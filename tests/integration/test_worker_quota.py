"""A producer quota of the brokers: transactions that would outlive their timeout become smaller."""

import statistics
import time

import pytest

from hapax.sandbox.broker import java
from tests.kit.commands import run_captured
from tests.kit.pipeline_under_test import source
from tests.kit.routes import a_route
from tests.kit.topics import Given

QUOTA = 400_000
RECORD_BYTES, RECORDS = 10_000, 1_600
TIMEOUT_S = 5.0

route = a_route(
    created=False,
    TRANSFORM=None,
    TRANSACTION__TIMEOUT=f"{TIMEOUT_S:g}s",
    GROUP__SESSION_TIMEOUT="10s",
)


def set_quota(bootstrap: str, client_id: str, bytes_per_s: int) -> None:
    """Let brokers hold back a client that produces more than so much (KIP-13)."""
    words = ("--bootstrap-server", bootstrap, "--alter", "--entity-type", "clients")
    more = ("--entity-name", client_id, "--add-config", f"producer_byte_rate={bytes_per_s}")
    done = run_captured(java("kafka.admin.ConfigCommand", *words, *more), timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_under_a_producer_quota_batches_shrink_to_what_fits_and_the_quota_is_used(route, in_time):
    route.create()
    route.write(*(Given(b"%d" % number + b"." * RECORD_BYTES) for number in range(RECORDS)))
    for client_id in (f"{route.app}-w-0", f"{route.app}/w-0"):
        set_quota(route.bootstrap, client_id, QUOTA)
    began_s = time.monotonic()
    worker = route.run_to_end(TELEMETRY__LOG_LEVEL="debug")
    took_s = time.monotonic() - began_s
    assert [source(record) for record in route.outputs()] == list(range(RECORDS))
    settled = worker.lines("transaction_committed")
    halved = worker.lines("batch_halved")
    sizes = [int(str(line["records"])) for line in settled]
    seen = f"{took_s:.1f} s, sizes {sizes}, halved {len(halved)} times"
    least_s = RECORDS * RECORD_BYTES / QUOTA
    assert took_s > 0.5 * least_s, f"the quota was not in force: {seen}"
    in_time(took_s, 1.7 * least_s + 3 * TIMEOUT_S)
    assert halved, seen
    # A larger one is tried now and then: what counts is the size of most.
    assert statistics.median(sizes[-10:]) <= max(sizes) / 2, seen
