import json
import signal
import socket
import subprocess
import sys
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped] # psutil has no types
import pytest
import redis
from confluent_kafka.admin import AdminClient

from hapax.sandbox import Sandbox, SandboxError
from hapax.sandbox.broker import archive_kafka
from hapax.sandbox.processes import Ports
from hapax.settings.env_file import read_env_file
from tests.kit.managed_process import child
from tests.kit.topics import ends, produce_aborted, produce_committed, produce_open, read_back


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


def test_redis_keeps_what_it_acknowledged_through_a_kill(sandbox, redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.set("claim", "owner")

    sandbox.redis.kill()
    sandbox.redis.start()
    sandbox.redis.await_ready()

    with redis.Redis.from_url(redis_url) as client:
        assert client.get("claim") == b"owner"
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_a_topic_that_nobody_created_is_not_created_by_asking(sandbox, unique):
    name = unique("never")
    assert not sandbox.kafka.has_topic(name)
    client = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers, "log_level": 0})
    assert client.list_topics(name, timeout=60).topics[name].error is not None
    assert not sandbox.kafka.has_topic(name)


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


def up(*options: str) -> AbstractContextManager[Any]:
    words = [sys.executable, "-c", "from hapax.commands.sandbox import app; app()", "up", *options]
    return child(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def servers_of(command: subprocess.Popen[str]) -> list[psutil.Process]:
    # Not theirs: what a server forks has its name, and may have ended before it is asked.
    children: list[psutil.Process] = psutil.Process(command.pid).children()
    assert {"java", "redis-server"} <= {one.name() for one in children}
    return children


def test_the_command_prints_the_environment_and_ends_all_when_told_to():
    with up("--json", "--topic", "orders:3") as command:
        variables = json.loads(command.stdout.readline())
        servers = servers_of(command)
        assert ends(variables["HAPAX_KAFKA__BOOTSTRAP_SERVERS"], "orders") == {0: 0, 1: 0, 2: 0}
        with redis.Redis.from_url(variables["HAPAX_DEDUP__REDIS_URL"]) as client:
            assert client.ping()

        command.send_signal(signal.SIGTERM)
        assert command.wait(60) == 0
    assert psutil.wait_procs(servers, timeout=0)[1] == []


def test_a_killed_command_leaves_no_server_and_no_folder_behind():
    with up() as command:
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
