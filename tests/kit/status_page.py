"""A status that events make, without a service around it."""

import io
import json
from collections.abc import Mapping
from typing import Any

from hapax.cluster.lag import PartitionLag
from hapax.settings import load_settings
from hapax.telemetry.events import Events
from hapax.telemetry.health import Health
from hapax.telemetry.http.status import Status
from hapax.telemetry.logs import Troubles, configure_logs
from hapax.telemetry.metrics import Metrics
from tests.unit.test_telemetry_events import ORDERS, OUT_LAG
from tests.unit.test_telemetry_settled import SETTLED
from tests.unit.test_telemetry_survey import OURS

SETTINGS = {
    "HAPAX_APP": "shop",
    "HAPAX_INSTANCE": "shop-0",
    "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "here:9092",
    "HAPAX_KAFKA__SECURITY__PROTOCOL": "sasl_ssl",
    "HAPAX_KAFKA__SECURITY__SASL_MECHANISM": "PLAIN",
    "HAPAX_KAFKA__SECURITY__USERNAME": "shop",
    "HAPAX_KAFKA__SECURITY__PASSWORD": "secret",
    "HAPAX_INPUT__TOPICS": "orders",
    "HAPAX_OUTPUT__TOPIC": "orders-clean",
    "HAPAX_DEAD_LETTER__TOPIC": "orders-dead",
    "HAPAX_TELEMETRY__RUNBOOKS_URL": "https://runbooks.example/hapax/",
}
ELSEWHERE = {"HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS": "there:9092"}
WITH_CLAIMS = {"HAPAX_DEDUP__REDIS_URL": "redis://claims:6379/0"}
WITHOUT_DEAD_LETTERS = {"HAPAX_DEAD_LETTER__TOPIC": ""}


class Group:
    """Members as brokers reported them last."""

    def __init__(self) -> None:
        self.told: tuple[float, dict[str, dict[str, list[int]]]] | None = None

    def latest(self) -> tuple[float, dict[str, dict[str, list[int]]]] | None:
        return self.told


class Told:
    """Events and the status that they make."""

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        transactional_id: str = "shop-shop-0",
        version: str = "1.2.3",
        **named: str,
    ) -> None:
        """``named``: of the settings, whatever they would refuse."""
        self.monotonic_s, self.wall_s = 1_000.0, 1_700_000_000.0
        self.metrics = Metrics()
        self.health = Health(30.0, lambda: self.monotonic_s)
        self.troubles = Troubles(lambda: self.wall_s)
        self._stream = io.TextIOWrapper(io.BytesIO(), write_through=True)
        logger = configure_logs(
            "info",
            "json",
            stream=self._stream,
            troubles=self.troubles,
            app="shop",
            instance="shop-0",
        )
        self.events = Events(self.metrics, self.health, logger, lambda: self.wall_s)
        self.members = Group()
        self.status_source = Status(
            load_settings(SETTINGS | dict(environ or {})).model_copy(update=named),
            self.health,
            metrics=self.metrics,
            troubles=self.troubles,
            members=self.members,
            transactional_id=transactional_id,
            record_path="native",
            build={"version": version, "librdkafka": "2.16.1"},
            wall_s=lambda: self.wall_s,
        )

    def work(self, *partition_lags: PartitionLag) -> None:
        """Come to the state of a worker that works."""
        self.events.service_ready()
        self.events.partitions_assigned([ORDERS])
        self.events.loop_moved()
        self.events.transaction_committed(SETTLED)
        self.events.lag_updated(partition_lags or (OURS, OUT_LAG), self.wall_s, complete=True)
        self.members.told = (self.wall_s, {"shop-shop-0 (10.0.0.1)": {"orders": [0, 1, 2, 7]}})

    def over(self, seconds: float, records: int) -> None:
        """Let time pass in which so many records come, sampled as the server does."""
        self.status_source.sample()
        self.metrics.records_consumed.of("orders").inc(records)
        self.wall_s += seconds
        self.monotonic_s += seconds
        self.events.loop_moved()
        self.status_source.sample()

    @property
    def status(self) -> dict[str, Any]:
        return dict(json.loads(json.dumps(self.status_source(), allow_nan=False)))
