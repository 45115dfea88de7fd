import json
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psutil  # type: ignore[import-untyped] # psutil has no types
import pytest
import redis
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from hapax.sandbox import Sandbox, SandboxError
from hapax.sandbox.archiving import archive_kafka
from hapax.sandbox.processes import Ports
from hapax.settings.env_file import read_env_file
from tests.kit.topics import (
    Given,
    committed,
    ends,
    produce,
    produce_aborted,
    produce_committed,
    produce_open,
    read_back,
)
from tests.kit.waiting import await_


def test_what_is_produced_is_read_back_whole(sandbox, unique):
    topic = unique("in")
    sandbox.create_topic(topic, partitions=2)
    given = Given(b"value", b"key", (("h", b"1"), ("h", None)), partition=1, timestamp_ms=1234)

    produce(sandbox.bootstrap_servers, topic, given, Given(None, partition=0))

    tombstone, record = read_back(sandbox.bootstrap_servers, topic)
    assert (tombstone.partition, tombstone.value, tombstone.key) == (0, None, None)
    assert (record.partition, record.offset, record.timestamp_ms) == (1, 0, 1234)
    assert (record.key, record.value, record.headers) == (b"key", b"value", given.headers)


def test_readers_see_committed_transactions_and_nothing_of_aborted_or_open_ones(sandbox, unique):
    topic = unique("transactions")
    sandbox.create_topic(topic)

    produce_committed(sandbox.bootstrap_servers, topic, b"committed")
    produce_aborted(sandbox.bootstrap_servers, topic, b"aborted")
    with produce_open(sandbox.bootstrap_servers, topic, b"open"):
        visible = read_back(sandbox.bootstrap_servers, topic)
        everything = read_back(sandbox.bootstrap_servers, topic, "read_uncommitted")
        stable = ends(sandbox.bootstrap_servers, topic)
        high = ends(sandbox.bootstrap_servers, topic, "read_uncommitted")

    assert [one.value for one in visible] == [b"committed"]
    assert [one.value for one in everything] == [b"committed", b"aborted", b"open"]
    assert (stable, high) == ({0: 4}, {0: 5})


def test_a_group_that_never_committed_has_no_offsets(sandbox, unique):
    topic = unique("uncommitted")
    sandbox.create_topic(topic, partitions=2)

    assert committed(sandbox.bootstrap_servers, unique("group"), topic) == {0: None, 1: None}


def test_redis_keeps_what_it_acknowledged_through_a_kill(sandbox, redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.set("claim", "owner")

    sandbox.redis.kill()
    sandbox.redis.start()
    sandbox.redis.await_ready()

    with redis.Redis.from_url(redis_url) as client:
        assert client.get("claim") == b"owner"
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_a_killed_broker_comes_back_with_its_data(sandbox, unique):
    topic = unique("kept")
    sandbox.create_topic(topic)
    produce_committed(sandbox.bootstrap_servers, topic, b"before")
    # A broker that is alone forgets markers that it had still to write: docs/non-obvious.md.
    await_(lambda: ends(sandbox.bootstrap_servers, topic) == {0: 2}, 30, lambda: "no marker")
    (broker,) = sandbox.kafka.brokers
    first = broker.pid

    broker.kill()
    assert not broker.running
    broker.start()
    broker.await_ready()

    assert broker.pid != first
    produce_committed(sandbox.bootstrap_servers, topic, b"after")
    # Markers are written behind the answer to a commit.
    await_(lambda: len(read_back(sandbox.bootstrap_servers, topic)) >= 2, 30, lambda: "not back")
    visible = read_back(sandbox.bootstrap_servers, topic)
    assert [one.value for one in visible] == [b"before", b"after"]


def test_a_paused_broker_answers_nobody_until_it_is_resumed(sandbox):
    (broker,) = sandbox.kafka.brokers
    client = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    broker.pause()
    try:
        with pytest.raises(KafkaException):
            client.list_topics(timeout=1)
    finally:
        broker.resume()
    broker.await_ready()


def test_who_comes_through_a_proxy_is_sent_to_the_proxy_again(sandbox):
    (broker,) = sandbox.kafka.brokers

    def advertised(port: int | None) -> list[int]:
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
        return [one.port for one in client.list_topics(timeout=60).brokers.values()]

    assert advertised(broker.port) == [broker.port]
    assert advertised(broker.proxy_target_port) == [broker.proxy_listen_port]
    assert len({broker.port, broker.proxy_target_port, broker.proxy_listen_port}) == 3


def test_records_below_an_offset_can_be_cut_off(sandbox, unique):
    topic = unique("cut")
    sandbox.create_topic(topic)
    produce(sandbox.bootstrap_servers, topic, b"0", b"1", b"2")

    sandbox.delete_records(topic, 0, before_offset=2)

    assert [one.offset for one in read_back(sandbox.bootstrap_servers, topic)] == [2]


def test_a_topic_that_nobody_created_is_not_created_by_asking(sandbox, unique):
    name = unique("never")
    assert not sandbox.kafka.has_topic(name)
    client = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers, "log_level": 0})
    assert client.list_topics(name, timeout=60).topics[name].error is not None
    assert not sandbox.kafka.has_topic(name)


@pytest.mark.long
def test_three_nodes_replicate_everything_and_outlive_one(cluster, unique):
    topic = unique("replicated")
    cluster.create_topic(topic, partitions=3)
    produce_committed(cluster.bootstrap_servers, topic, b"three")

    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    topics = client.list_topics(timeout=60).topics
    for name in (topic, "__transaction_state"):
        for partition in topics[name].partitions.values():
            assert sorted(partition.replicas) == [1, 2, 3]

    victim = cluster.kafka.brokers[0]
    victim.kill()
    try:
        produce_committed(cluster.bootstrap_servers, topic, b"two")
    finally:
        victim.start()
        cluster.kafka.await_ready()
    visible = read_back(cluster.bootstrap_servers, topic)
    assert {one.value for one in visible} == {b"three", b"two"}


def test_data_given_a_place_outlive_the_sandbox(tmp_path):
    with Sandbox(data_dir=tmp_path) as first:
        first.create_topic("kept")
        produce_committed(first.bootstrap_servers, "kept", b"value")
        with redis.Redis.from_url(first.redis_url) as client:
            client.set("claim", "owner")

    with Sandbox(data_dir=tmp_path) as second:
        assert [one.value for one in read_back(second.bootstrap_servers, "kept")] == [b"value"]
        with redis.Redis.from_url(second.redis_url) as client:
            assert client.get("claim") == b"owner"


def test_a_broker_that_cannot_start_fails_with_its_last_words(tmp_path):
    with Sandbox(redis=False, data_dir=tmp_path) as sandbox:
        (broker,) = sandbox.kafka.brokers
        broker.terminate()
        with broker.configuration.open("a", encoding="utf-8") as properties:
            properties.write("num.io.threads=none\n")
        broker.start()
        with pytest.raises(SandboxError, match=r"(?s)ended while it started.*num\.io\.threads"):
            broker.await_ready()


def up(*options: str) -> subprocess.Popen[str]:
    start = "from hapax.commands.sandbox import app; app()"
    return subprocess.Popen(
        [sys.executable, "-c", start, "up", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def servers_of(command: subprocess.Popen[str]) -> list[psutil.Process]:
    children: list[psutil.Process] = psutil.Process(command.pid).children(recursive=True)
    assert {"java", "redis-server"} <= {one.name() for one in children}
    return children


def test_the_command_prints_the_environment_and_ends_all_when_told_to():
    with up("--json", "--topic", "orders:3") as command:
        assert command.stdout is not None
        variables = json.loads(command.stdout.readline())
        servers = servers_of(command)
        bootstrap = variables["HAPAX_KAFKA__BOOTSTRAP_SERVERS"]
        assert ends(bootstrap, "orders") == {0: 0, 1: 0, 2: 0}
        with redis.Redis.from_url(variables["HAPAX_DEDUP__REDIS_URL"]) as client:
            assert client.ping()

        command.send_signal(signal.SIGTERM)
        assert command.wait(60) == 0
    assert psutil.wait_procs(servers, timeout=0)[1] == []


def test_a_killed_command_leaves_no_server_and_no_folder_behind():
    with up() as command:
        assert command.stdout is not None
        assert command.stdout.readline().startswith("export HAPAX_KAFKA__BOOTSTRAP_SERVERS=127.0.")
        assert command.stdout.readline().startswith("export HAPAX_DEDUP__REDIS_URL=redis://127.0.")
        servers = servers_of(command)
        (redis_server,) = (one for one in servers if one.name() == "redis-server")
        folder = Path(redis_server.cwd())
        assert "hapax-sandbox-" in str(folder)
        command.kill()
    assert psutil.wait_procs(servers, timeout=60)[1] == []
    assert not folder.exists()


def test_chosen_ports_are_taken_and_the_environment_is_in_a_file(tmp_path):
    with closing(Ports()) as ports:
        kafka, store = ports.reserve(), ports.reserve()
    file = tmp_path / "sandbox.env"
    words = ("--port", str(kafka), "--redis-port", str(store), "--env-file", str(file))
    with up(*words) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == (
            f"export HAPAX_KAFKA__BOOTSTRAP_SERVERS=127.0.0.1:{kafka}\n"
        )
        assert read_env_file(file, {}) == {
            "HAPAX_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{kafka}",
            "HAPAX_DEDUP__REDIS_URL": f"redis://127.0.0.1:{store}/0",
        }
        with up(*words) as second:  # the port is taken, and the file is its own
            assert second.wait(60) == 3
        command.send_signal(signal.SIGTERM)
        assert command.wait(60) == 0


def test_a_file_of_somebody_else_is_not_overwritten(tmp_path):
    file = tmp_path / "settings.env"
    file.write_text("HAPAX_APP=orders\n")
    with up("--env-file", str(file)) as command:
        assert command.wait(60) == 2
    assert file.read_text() == "HAPAX_APP=orders\n"


def test_a_port_that_is_taken_is_named():
    with closing(socket.create_server(("127.0.0.1", 0))) as taken, closing(Ports()) as ports:
        port = taken.getsockname()[1]
        with pytest.raises(SandboxError, match=f"Port {port} .*in use"):
            ports.reserve(port)


def test_a_broker_maps_the_archive_of_its_classes(tmp_path):
    archive = archive_kafka()
    with Sandbox(redis=False, data_dir=tmp_path) as sandbox:
        [broker] = sandbox.kafka.brokers
        maps = Path(f"/proc/{broker.pid}/maps").read_text()
    assert str(archive) in maps
