"""A pipeline that is well on three brokers and two Redis, and the doctor that looks at it."""

from __future__ import annotations

import json
import uuid
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from hapax.commands.tree import app as commands
from tests.fault.cluster import Cluster
from tests.kit.claim_stores import admin, redis_server, tell
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.topics import Given, produce
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hapax.sandbox import Sandbox
    from hapax.sandbox.redis_server import Redis

DAY_MS = 86_400_000
PARTITIONS = 2
KEPT = {"retention.ms": str(7 * DAY_MS)}
TROUBLE = {"WARN", "FAIL"}


class Clinic:
    """One healthy pipeline; ``examine`` runs the command with some of its environment changed."""

    def __init__(self, cluster: Sandbox, folder: Path, stores: tuple[Redis, Redis]) -> None:
        self.cluster = cluster
        self.primary, self.replica = stores
        self.route = PipelineUnderTest(cluster, folder, partitions=PARTITIONS)
        self.environ = {
            "HAPAX_APP": self.route.app,
            "HAPAX_INSTANCE": "w-0",
            "HAPAX_KAFKA__BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
            "HAPAX_INPUT__TOPICS": self.route.source,
            "HAPAX_OUTPUT__TOPIC": self.route.target,
            "HAPAX_DEAD_LETTER__TOPIC": self.route.dead_letters,
            "HAPAX_DEDUP__REDIS_URL": self.primary.url,
            "HAPAX_DEDUP__TTL": "8d",
            "HAPAX_TELEMETRY__PORT": "0",
        }

    def topic(self, partitions: int = PARTITIONS, **config: str) -> str:
        """Make a topic of its own; ``__`` in a name stands for a dot."""
        name = f"clinic-{uuid.uuid4().hex[:12]}"
        changed = {key.replace("__", "."): value for key, value in config.items()}
        self.cluster.create_topic(name, partitions, {**KEPT, **changed})
        return name

    def run(self, *words: str, **environ: str) -> Any:
        """Run the command in this process."""
        given = {f"HAPAX_{name}": value for name, value in environ.items()}
        return CliRunner().invoke(commands, ["doctor", *words], env={**self.environ, **given})

    def troubles(self, **environ: str) -> set[str]:
        """Return the names of the checks that found something; each must say how it is mended."""
        done = self.run("--json", **environ)
        found = [each for each in json.loads(done.stdout)["findings"] if each["verdict"] in TROUBLE]
        assert all(each["fix"] for each in found), found
        code = 1 if any(each["verdict"] == "FAIL" for each in found) else 0
        if any(each["check"] == "settings" for each in found):
            code = 2
        assert done.exit_code == code, done.output
        return {each["check"] for each in found}

    def checks(self, verdict: str) -> set[str]:
        """Return the names of the checks with a finding of that verdict."""
        found = json.loads(self.run("--json").stdout)["findings"]
        return {each["check"] for each in found if each["verdict"] == verdict}

    @contextmanager
    def store(self, **settings: str) -> Iterator[None]:
        """Set the claim store differently for a while; ``__`` in a name stands for a dash."""
        names = [name.replace("__", "-") for name in settings]
        client: Any = admin(self.primary)
        before = {name: client.config_get(name)[name] for name in names}
        for name, value in zip(names, settings.values(), strict=True):
            tell(self.primary, "CONFIG", "SET", name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                tell(self.primary, "CONFIG", "SET", name, value)


@contextmanager
def clinic(cluster: Sandbox, folder: Path) -> Iterator[Clinic]:
    """Build it, let a worker do some work, and wait until everything is as it should be."""
    with ExitStack() as stack:
        stores = tuple(
            stack.enter_context(redis_server(folder / name)) for name in ("primary", "replica")
        )
        for each in stores:
            tell(each, "CONFIG", "SET", "appendfsync", "always")
        tell(stores[1], "REPLICAOF", "127.0.0.1", stores[0].port)
        tell(
            stores[0], "CONFIG", "SET", "min-replicas-to-write", "1", "min-replicas-max-lag", "600"
        )
        client: Any = admin(stores[0])
        await_(
            lambda: client.info("replication").get("min_slaves_good_slaves") == 1,
            60.0,
            lambda: str(client.info("replication")),
        )
        await_(Cluster(cluster).in_step, 90.0, lambda: "the brokers are not in step")
        made = Clinic(cluster, folder, (stores[0], stores[1]))
        stack.callback(made.route.close)
        made.route.create(source=KEPT, target=KEPT, dead_letters=KEPT)
        records = [Given(b"{}", headers=(("message-id", b"%d" % one),)) for one in range(3)]
        produce(cluster.bootstrap_servers, made.route.source, *records)
        made.route.run_to_end(DEDUP__REDIS_URL=stores[0].url, DEDUP__TTL="8d", TRANSFORM=None)
        yield made
