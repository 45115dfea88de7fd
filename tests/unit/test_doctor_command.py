import json
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from msgspec.structs import replace
from typer.testing import CliRunner

from hapax.commands.doctor import summary
from hapax.commands.tree import app
from hapax.core.errors import ConfigurationError
from hapax.kafka.admin.topics import ApiVersionsLog
from hapax.kafka.connection import probe, split
from hapax.operations.doctor import examination as doctor
from hapax.operations.doctor.check import CheckContext, Finding, Verdict
from hapax.operations.doctor.examination import Examination, judge, write_bundle
from hapax.sandbox.processes import Ports
from hapax.settings import Settings
from hapax.telemetry.health import Health
from hapax.telemetry.http.server import TelemetryServer
from hapax.telemetry.metrics import Metrics
from tests.kit.commands import invoked
from tests.kit.doctor import ENVIRON, KAFKA, healthy, healthy_there, judged, with_claims, with_topic

RUN = CliRunner()


@pytest.fixture
def looks(monkeypatch):
    def set_(change: Callable[[CheckContext], CheckContext]) -> None:
        def examine(settings: Settings) -> Examination:
            case = change(healthy()._replace(settings=settings))
            return Examination(case, tuple(judge(case)))

        monkeypatch.setattr(doctor, "examine", examine)

    return set_


def test_a_healthy_pipeline_gets_names_and_exit_code_0_and_what_passed_on_demand(looks):
    looks(lambda case: case)
    done = invoked(app, ["doctor"], env=ENVIRON)
    assert done.stderr == ""
    fine, line = done.stdout.splitlines()
    assert re.fullmatch(r"Fine: \d+ \(settings, .*\bdurability, .*\)", fine)
    assert line.startswith("All ")
    assert " checks passed" in line
    for option in ("--all", "-v"):
        done = invoked(app, ["doctor", option], env=ENVIRON)
        listed = [line.split()[:2] for line in done.stdout.splitlines()]
        assert ["PASS", "durability:"] in listed
        assert "UNTOLD" not in {verdict for verdict, _ in listed}


def test_findings_are_grouped_each_with_its_fix_and_only_a_failure_leaves_with_1(looks):
    looks(with_claims(settings={"maxmemory-policy": "allkeys-lru"}))
    shown = invoked(app, ["doctor"], env=ENVIRON, code=1).stdout.splitlines()
    risk, first, second, _fine, last = shown
    assert risk == "At risk: 1"
    assert first.startswith("  FAIL   claim-eviction: maxmemory-policy=allkeys-lru")
    assert second.strip().startswith("fix: redis-cli CONFIG SET maxmemory-policy noeviction")
    assert last.startswith("1 FAIL, 0 WARN, ")
    looks(with_claims(problem="gone"))
    shown = invoked(app, ["doctor"], env=ENVIRON, code=1).stdout.splitlines()
    assert shown[0] == "Broken now: 1"
    assert shown[1].startswith("  FAIL   claim-store: ")
    assert shown[3].startswith("Not known: ")
    assert "claim-eviction" in shown[3]
    looks(with_topic("in", retention__bytes="1000"))
    risk, first, *_ = invoked(app, ["doctor"], env=ENVIRON).stdout.splitlines()
    assert first.startswith("  WARN   retention-bytes: in: retention.bytes=1000")


def test_json_holds_every_finding(looks):
    looks(with_topic("out", unclean__leader__election__enable="true"))
    done = invoked(app, ["doctor", "--json"], env=ENVIRON, code=1)
    told = json.loads(done.stdout)
    assert told["ok"] is False
    assert told["counts"]["FAIL"] == 1
    (failed,) = [each for each in told["findings"] if each["verdict"] == "FAIL"]
    assert failed["check"] == "unclean-election"
    assert failed["fix"]
    assert failed["group"] == "at risk"
    assert {one["group"] for one in told["findings"]} == {"at risk", "fine"}


def test_text_of_strangers_cannot_command_the_terminal(looks):
    looks(with_claims(problem="\x1b[2Jgone"))
    done = RUN.invoke(app, ["doctor"], env=ENVIRON)
    assert "\x1b[2J" not in done.stdout
    assert "\\x1b[2Jgone" in done.stdout


def test_settings_that_contradict_each_other_are_named_and_leave_with_2():
    env = {**ENVIRON, "HAPAX_TRANSACTION__TIMEOUT": "1m", "HAPAX_APPP": "x"}
    done = invoked(app, ["doctor"], env=env, code=2)
    failed = [line for line in done.stdout.splitlines() if line.startswith("  FAIL   settings: ")]
    assert len(failed) == 3  # against the session timeout, the watchdog, and a name
    assert any("HAPAX_TRANSACTION__TIMEOUT=60s must be shorter than" in line for line in failed)
    told = json.loads(RUN.invoke(app, ["doctor", "--json"], env=env).stdout)
    assert {each["check"] for each in told["findings"]} == {"settings"}


def test_a_dead_cluster_is_named_within_seconds_without_a_traceback():
    ports = Ports()
    env = {
        **ENVIRON,
        "HAPAX_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{ports.reserve()}",
        "HAPAX_DEDUP__REDIS_URL": f"redis://127.0.0.1:{ports.reserve()}/0",
    }
    done = RUN.invoke(app, ["doctor", "--json"], env=env)
    ports.close()
    assert done.exit_code == 1
    assert done.stderr == ""
    assert {
        each["check"] for each in json.loads(done.stdout)["findings"] if each["verdict"] == "FAIL"
    } == {"bootstrap", "claim-store"}


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (["--bundle", "/nowhere/at/all.tar.gz"], {}),
        (["--bundle", "/nowhere/at/all.tar.gz"], {"HAPAX_APP": "a b"}),
        (["--acls"], {"HAPAX_APP": "a b"}),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(looks, words, env):
    looks(lambda case: case)
    (line,) = invoked(app, ["doctor", *words], env={**ENVIRON, **env}, code=2).stderr.splitlines()
    assert line.startswith("hapax doctor: ")


def test_the_least_rights_are_printed_for_people_and_for_programs():
    table = invoked(app, ["doctor", "--acls"], env=ENVIRON)
    assert "shop:0" in table.stdout
    assert "~hapax:{shop}:claims*" in table.stdout
    told = json.loads(RUN.invoke(app, ["doctor", "--acls", "--json"], env=ENVIRON).stdout)
    needed = {
        (each["resource"], each["name"], each["operation"])
        for each in told["kafka"]
        if not each["optional"]
    }
    assert {("TOPIC", "in", "READ"), ("TOPIC", "out", "WRITE"), ("GROUP", "shop", "READ")} <= needed


def test_the_rights_on_two_clusters_are_printed_one_after_the_other_with_their_addresses():
    env = {**ENVIRON, "HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS": "there:9092"}
    here, there = RUN.invoke(app, ["doctor", "--acls"], env=env).stdout.split("outputs, there:9092")
    assert "On the cluster of the input, kafka-0:9092,kafka-1:9092:" in here
    assert ("shop/from/" in here, "shop/from/" in there) == (False, True)
    told = json.loads(RUN.invoke(app, ["doctor", "--acls", "--json"], env=env).stdout)
    assert told["servers"] == "kafka-0:9092,kafka-1:9092"
    assert told["outputs"]["servers"] == "there:9092"
    names = [{one["name"] for one in each["kafka"]} for each in (told, told["outputs"])]
    assert ["out" in each for each in names] == [False, True]


SECRETS = {
    "HAPAX_KAFKA__SECURITY__PROTOCOL": "sasl_ssl",
    "HAPAX_KAFKA__SECURITY__SASL_MECHANISM": "PLAIN",
    "HAPAX_KAFKA__SECURITY__USERNAME": "shop",
    "HAPAX_KAFKA__SECURITY__PASSWORD": 'hunter2-"sasl',
    "HAPAX_DEDUP__REDIS_URL": "redis://shop:hunter2%40redis@cache:6379/0?password=hunter2-more",
}


def test_an_archive_holds_no_secret_wherever_it_came_from(tmp_path, monkeypatch):
    key = tmp_path / "password"
    key.write_text("hunter2-in-a-file\n")
    environ = {**ENVIRON, **SECRETS}
    environ["HAPAX_KAFKA__SECURITY__PASSWORD_FILE"] = str(key)
    del environ["HAPAX_KAFKA__SECURITY__PASSWORD"]
    case = healthy(
        **{name: environ.get(name, "") for name in SECRETS},
        HAPAX_KAFKA__SECURITY__PASSWORD_FILE=str(key),
    )
    leaks = {
        "settings of broker 1": "login shop hunter2-in-a-file was refused",
        "consumer group": "hunter2@redis and hunter2%40redis and hunter2-more",
    }
    case = case._replace(kafka=replace(KAFKA, untold=leaks))
    findings = [*judged(case), Finding("x", Verdict.FAIL, "hunter2-in-a-file", "hunter2%40redis")]
    target = tmp_path / "support.tar.gz"
    write_bundle(target, environ, findings, case)
    assert target.stat().st_mode & 0o077 == 0
    with tarfile.open(target) as archive:
        files = {
            member.name: (archive.extractfile(member) or key.open("rb")).read()
            for member in archive.getmembers()
        }
    names = {name.rpartition("/")[2].removesuffix(".json") for name in files}
    assert names >= {"doctor", "settings", "facts", "offsets", "versions"}
    for name, content in files.items():
        assert b"hunter2" not in content, name
        json.loads(content)
    assert b"***" in files["hapax-doctor/doctor.json"]
    assert json.loads(files["hapax-doctor/offsets.json"])["in/0"]["committed"] == 10
    shown = json.loads(files["hapax-doctor/settings.json"])
    assert shown["HAPAX_DEDUP__REDIS_URL"].endswith("@cache:6379/0?***")


def test_an_archive_does_not_follow_a_link_nor_keep_the_mode_of_an_old_file(tmp_path):
    foreign, link = tmp_path / "foreign", tmp_path / "link.tar.gz"
    foreign.write_text("precious")
    link.symlink_to(foreign)
    old, other_name = tmp_path / "old.tar.gz", tmp_path / "other-name"
    old.write_text("old")
    old.chmod(0o666)
    other_name.hardlink_to(old)
    for target in (link, old):
        write_bundle(target, ENVIRON, [], None)
        assert target.is_file()
        assert not target.is_symlink()
        assert target.stat().st_mode & 0o777 == 0o600
        assert tarfile.is_tarfile(target)
    assert foreign.read_text() == "precious"
    assert other_name.read_text() == "old"
    left = {each.name for each in tmp_path.iterdir()}
    assert left == {"foreign", "link.tar.gz", "old.tar.gz", "other-name"}


def test_an_archive_never_takes_the_place_of_a_device_or_a_folder(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    for target in (tmp_path, tmp_path / "pipe", tmp_path / "device"):
        with pytest.raises(ConfigurationError, match="no regular file"):
            write_bundle(target, ENVIRON, [], None)
    assert (tmp_path / "device").is_symlink()


def archived(target: Path, name: str) -> dict[str, Any]:
    with tarfile.open(target) as archive:
        file = archive.extractfile(f"hapax-doctor/{name}.json")
        assert file is not None
        return dict(json.loads(file.read()))


def test_an_archive_holds_what_the_service_on_this_machine_says(tmp_path):
    server = TelemetryServer(
        "127.0.0.1",
        0,
        registry=Metrics().registry,
        health=Health(60.0),
        status=lambda: {"state": "hunter2-status"},
    )
    server.start()
    environ = ENVIRON | SECRETS | {"HAPAX_TELEMETRY__PORT": str(server.port)}
    environ |= {"HAPAX_KAFKA__SECURITY__PASSWORD": "hunter2-status"}
    try:
        write_bundle(tmp_path / "b.tar.gz", environ, [], healthy(**environ))
    finally:
        server.close()
    assert archived(tmp_path / "b.tar.gz", "status") == {"state": "***"}


def test_an_archive_holds_the_facts_about_both_clusters(tmp_path):
    there, target = healthy_there(), tmp_path / "b.tar.gz"
    write_bundle(target, ENVIRON, judged(there), there.source, there)
    for name, cluster in (("facts", "ours"), ("facts-outputs", "theirs")):
        assert archived(target, name)["kafka"]["cluster_id"] == cluster
    with tarfile.open(target) as archive:
        assert "hapax-doctor/offsets-outputs.json" in archive.getnames()


def test_an_archive_of_settings_that_cannot_work_holds_the_findings(tmp_path):
    target = tmp_path / "b.tar.gz"
    env = {**ENVIRON, **SECRETS, "HAPAX_KAFKA__SECURITY__CA_FILE": ""}
    del env["HAPAX_KAFKA__SECURITY__USERNAME"]
    invoked(app, ["doctor", "--bundle", str(target)], env=env, code=2)
    with tarfile.open(target) as archive:
        assert archive.getnames() == ["hapax-doctor/doctor.json"]
    text = json.dumps(archived(target, "doctor"))
    assert "hunter2" not in text
    assert "HAPAX_KAFKA__SECURITY__USERNAME" in text


def test_addresses_are_tried_by_name_and_port():
    ports = Ports()
    dead = f"127.0.0.1:{ports.reserve()}"
    found = probe([dead, "nowhere.invalid:9092", dead])
    ports.close()
    assert list(found) == [dead, "nowhere.invalid:9092"]
    assert "refused" in (found[dead].problem or "")
    assert found["nowhere.invalid:9092"].problem
    assert split("kafka") == ("kafka", 9092)
    assert split("[::1]:9093") == ("::1", 9093)


def test_versions_are_the_least_of_all_brokers_that_answered_and_errors_are_kept_once():
    listener = ApiVersionsLog()
    for broker, version in (("kafka-1:9092/1", 5), ("kafka-2:9092/2", 3)):
        line = "APIVERSION [x] [thrd:y]: %s:   ApiKey TxnOffsetCommit (28) Versions 0..%d"
        listener.logger.debug(line, broker, version)
    line = "APIVERSION [x] [thrd:y]: %s:   ApiKey ConsumerGroupHeartbeat (68) Versions 0..1"
    listener.logger.debug(line, "kafka-1:9092/1")
    assert listener.apis == {"TxnOffsetCommit": 3, "ConsumerGroupHeartbeat": -1}
    for _ in range(3):
        listener.error(KafkaError(KafkaError._AUTHENTICATION, "no"))
    assert listener.errors == ["_AUTHENTICATION: no"]


def test_the_last_line_counts_each_verdict():
    findings = [Finding("a", Verdict.PASS, ""), Finding("b", Verdict.UNTOLD, "")]
    assert summary(findings) == "All 1 checks passed; 1 could not be made."
    findings.append(Finding("c", Verdict.WARN, "", "x"))
    assert summary(findings) == "0 FAIL, 1 WARN, 1 PASS; 1 could not be made."
