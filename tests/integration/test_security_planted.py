"""A secret of its own in every place that can hold one, looked for in all that is written.

No broker is needed: what a start, a refusal and a doctor without an answer say is what leaks first.
"""

import json
import os
import subprocess
import sys
import tarfile
import time

import pytest

from hapax.sandbox.processes import Ports
from tests.kit.probes import ask, free_port

WITHIN_S = 60.0
PATHS = ("/", "/status.json", "/metrics", "/livez", "/readyz", "/startupz")
S = "HAPAX_KAFKA__SECURITY__"
MARK = "canary"
# Each has the mark in it, and no other letter in common that a test could mistake.
KAFKA_PROPERTIES = {
    "sasl.oauthbearer.extensions": "logicalCluster=lkc,secret=canary01",
    "client.rack": "http://u:canary02@rack.example/?token=canary03",
}
SPARK_PROPERTIES = {
    "spark.hadoop.fs.s3a.access.key": "canary04",
    "spark.hadoop.fs.s3a.secret.key": "canary05",
    "spark.hadoop.fs.azure.account.key.shop.blob.core.windows.net": "canary06",
    "spark.driver.extraJavaOptions": "-Xmx1g -Djavax.net.ssl.trustStorePassword=canary07",
    "spark.hadoop.orders.db": "jdbc:postgresql://db/orders?user=u&password=canary08",
    "spark.executorEnv.AWS_SECRET_ACCESS_KEY": "canary09",
    "spark.hadoop.fs.s3a.endpoint": "https://u:canary10@s3.example",
}


@pytest.fixture
def environ(tmp_path):
    ports = Ports()
    password = tmp_path / "password"
    password.write_text("canary11\n")
    kafka, redis = ports.reserve(), ports.reserve()
    yield {
        "PATH": os.environ["PATH"],
        "HAPAX_APP": "shop",
        "HAPAX_INSTANCE": "shop-0",
        "HAPAX_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{kafka}",
        "HAPAX_INPUT__TOPICS": "in",
        "HAPAX_OUTPUT__TOPIC": "out",
        f"{S}PROTOCOL": "sasl_plaintext",
        f"{S}SASL_MECHANISM": "OAUTHBEARER",
        f"{S}OAUTH_TOKEN_URL": f"http://127.0.0.1:{kafka}/token?client=canary12#canary13",
        f"{S}OAUTH_CLIENT_ID": "shop",
        f"{S}OAUTH_CLIENT_SECRET": "canary14",
        f"{S}PASSWORD_FILE": str(password),
        f"{S}USERNAME": "shop",
        "HAPAX_DEDUP__REDIS_URL": f"redis://shop:canary15@127.0.0.1:{redis}/0?password=canary16",
        "HAPAX_KAFKA__PROPERTIES": json.dumps(KAFKA_PROPERTIES),
        "HAPAX_SPARK__PROPERTIES": json.dumps(SPARK_PROPERTIES),
        "HAPAX_SPARK__MASTER": "k8s://https://u:canary17@cluster.example:6443",
        "HAPAX_SPARK__CHECKPOINT": "s3a://id:canary18@orders/checkpoints",
        "AWS_SECRET_ACCESS_KEY": "canary19",
        "HAPAX_TELEMETRY__LOG_LEVEL": "debug",
        "HAPAX_TELEMETRY__ADDRESS": "127.0.0.1",
        "HAPAX_TELEMETRY__PORT": str(free_port()),
    }
    ports.close()


def said(environ: dict[str, str], *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "hapax", *words],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=WITHIN_S,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def test_no_planted_secret_is_shown_by_commands_and_what_is_none_stays(environ, tmp_path):
    target = tmp_path / "support.tar.gz"
    seen = {
        " ".join(words): said(environ, *words)
        for words in (
            ["config", "show"],
            ["config", "show", "--json"],
            ["config", "check"],
            ["doctor", "--all"],
            ["doctor", "--json", "--bundle", str(target)],
            ["offsets"],
            ["doctor", "--acls"],
        )
    }
    assert {name: text for name, (_, text) in seen.items() if MARK in text} == {}
    shown = json.loads(seen["config show --json"][1])
    assert json.loads(shown["HAPAX_SPARK__PROPERTIES"]["value"]).keys() == SPARK_PROPERTIES.keys()
    assert "s3.example" in shown["HAPAX_SPARK__PROPERTIES"]["value"]
    assert shown["HAPAX_SPARK__CHECKPOINT"]["value"].endswith("@orders/checkpoints")
    assert seen["config check"][0] == 0, seen["config check"]
    with tarfile.open(target) as archive:
        files = {each.name: archive.extractfile(each) for each in archive.getmembers()}
        content = {name: file.read() for name, file in files.items() if file is not None}
    assert len(content) >= 5
    assert {name for name, text in content.items() if MARK.encode() in text} == set()
    assert b"s3.example" in content["hapax-doctor/settings.json"]


def test_no_planted_secret_is_shown_by_a_start_that_finds_no_broker(environ):
    worker = subprocess.Popen(
        [sys.executable, "-m", "hapax", "run"],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        port = int(environ["HAPAX_TELEMETRY__PORT"])
        pages = _pages(port, worker)
    finally:
        worker.terminate()
        log = worker.communicate(timeout=WITHIN_S)[0].decode()
    first = json.loads(log.splitlines()[0])
    assert first["event"] == "service_started"
    assert "s3.example" in first["settings"]["HAPAX_SPARK__PROPERTIES"]
    assert MARK not in log
    assert {path for path, text in pages.items() if MARK in text} == set()
    assert set(pages) == set(PATHS)


def _pages(port: int, worker: subprocess.Popen[bytes]) -> dict[str, str]:
    until_s = time.monotonic() + WITHIN_S
    while worker.poll() is None and time.monotonic() < until_s:
        try:
            return {path: ask(port, path)[1] for path in PATHS}
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the worker never answered")


WRONG = [
    {"HAPAX_SPARK__PROPERTIES": '{"spark.hadoop.fs.s3a.secret.key": "canary"'},
    {"HAPAX_SPARK__PROPERTIES": '{"spark.master": "spark://u:canary@h"}'},
    {"HAPAX_SPARK__PROPERTIES": '{"spark.hadoop.fs.s3a.secret.key": {"a": "canary"}}'},
    {"HAPAX_KAFKA__PROPERTIES": '{"sasl.password": "canary"}'},
    {"HAPAX_KAFKA__PROPERTIES_FILE": "canary", "HAPAX_KAFKA__PROPERTIES": ""},
    {"HAPAX_DEDUP__REDIS_URL": "redis://u:canary@h:99999"},
    {"HAPAX_KAFKA__BOOTSTRAP_SERVERS": "https://u:canary@h:9092"},
    {f"{S}OAUTH_TOKEN_URL": "https://u:canary@h/token"},
    {f"{S}PASWORD": "canary"},
    {"HAPAX_SPARK__CHECKPOINT": "s3a://id:canary@orders\x01"},
]


REFUSED_BY_OTHERS = [
    {"HAPAX_KAFKA__PROPERTIES": '{"nosuch.password": "canary"}'},
    {"HAPAX_KAFKA__PROPERTIES": '{"compression.type": "http://u:canary@h"}'},
    {"HAPAX_KAFKA__PROPERTIES": '{"linger.ms": "http://u:canary@h"}'},
    {"HAPAX_TRANSFORM": "tests.kit.canary_:f", "MY_TOKEN": "tests.kit.canary_"},
]


@pytest.mark.parametrize("wrong", WRONG, ids=" ".join)
def test_no_mistake_in_the_settings_repeats_what_may_be_a_secret(environ, wrong):
    for words in (["config", "check"], ["config", "show", "--json"], ["run"], ["doctor"]):
        code, text = said(environ | wrong, *words)
        assert (code, MARK in text) == (2, False), text


@pytest.mark.parametrize("wrong", REFUSED_BY_OTHERS, ids=" ".join)
def test_no_secret_is_repeated_from_the_refusal_of_a_library(environ, wrong):
    code, text = said(environ | wrong, "run")
    assert code == 2, text
    assert "service_stopped" in text
    assert MARK not in text
