"""The doctor where it is refused, and where a broker's file does nothing."""

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hapax.cluster.cluster_state import Right
from hapax.commands.tree import app
from hapax.operations.doctor.acls import target_rights
from hapax.sandbox import Sandbox
from hapax.sandbox.guard import Authority
from tests.kit.at_work import await_exit
from tests.kit.commands import kafka_configs, run_captured
from tests.kit.guarded import withdraw
from tests.kit.mirrors import Mirror, given
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.secured import INSTANCE, login, needed, settings_of
from tests.kit.waiting import await_

# -- The doctor on a cluster that asks who it is: with the least rights, without one, and refused.


PASSWORD = "ask-me-anything"  # noqa: S105 - of a user that lives for seconds
PATIENCE_S = 60.0

LEFT_OUT_THERE = (
    (1, ["TOPIC_AUTHORIZATION_FAILED", "grant the right"]),
    (3, ["HAPAX_DEAD_LETTER__TOPIC", "may not be read"]),
    (1, ["TOPIC_AUTHORIZATION_FAILED", "grant the right"]),
    (1, ["the progress of", "GROUP_AUTHORIZATION_FAILED", "grant the right"]),
    (3, ["TRANSACTIONAL_ID_AUTHORIZATION_FAILED"]),
)
"""Of the rights on the cluster of the outputs, in the order they are printed in: how a process that
lacks one leaves."""


@pytest.fixture
def route(guarded, route_of, unique):
    """Topics, and a user of its own that was granted nothing yet."""
    user = unique("doctor")
    guarded.rights.set_password(user, PASSWORD, "SCRAM-SHA-256")
    settings = login(guarded, "SCRAM-SHA-256", USERNAME=user, PASSWORD=PASSWORD)
    return route_of(servers=guarded, **settings)


def findings(route: PipelineUnderTest, **settings: str) -> list[dict[str, Any]]:
    done = ask(route, "--json", **settings)
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return found


def ask(route: PipelineUnderTest, *words: str, **settings: str) -> Result:
    environ = route.environment(**settings) | {"HAPAX_INSTANCE": INSTANCE}
    ours = {name: text for name, text in environ.items() if name.startswith("HAPAX_")}
    return CliRunner().invoke(app, ["doctor", *words], env=ours)


def failed(route: PipelineUnderTest, **settings: str) -> list[tuple[str, str]]:
    return [
        (each["check"], each["saw"])
        for each in findings(route, **settings)
        if each["verdict"] in {"WARN", "FAIL"}
    ]


def _parted(rights: tuple[Right, ...], resource: str) -> tuple[list[Right], list[Right]]:
    """Return the rights on one resource of that kind, and all others."""
    missing = [one for one in rights if one.resource == resource][-1:]
    return missing, [one for one in rights if one not in missing]


def user_of(route: PipelineUnderTest) -> str:
    return route.environment()["HAPAX_KAFKA__SECURITY__USERNAME"]


def test_with_the_least_rights_nothing_is_blamed(guarded, route):
    guarded.rights.allow(user_of(route), *needed(route))
    await_(lambda: failed(route) == [], PATIENCE_S, lambda: str(failed(route)))
    untold = {each["check"] for each in findings(route) if each["verdict"] == "UNTOLD"}
    assert {"durability", "transaction-timeout"} <= untold  # settings are told to more rights only
    assert "positions" not in untold


@pytest.mark.parametrize("resource", ["TOPIC", "GROUP", "TRANSACTIONAL_ID"])
def test_a_right_that_is_missing_is_named(guarded, route, resource):
    (missing, *_), rights = _parted(needed(route), resource)
    guarded.rights.allow(user_of(route), *rights)
    await_(
        lambda: [(name, missing.name in saw) for name, saw in failed(route)] == [("rights", True)],
        PATIENCE_S,
        lambda: str(failed(route)),
    )


def _mirror(sandbox: Sandbox, guarded: Sandbox, folder: Path, user: str) -> Mirror:
    """Return a mirror to the guarded cluster, by a user of its own that was granted nothing yet."""
    folder.mkdir(exist_ok=True)
    guarded.rights.set_password(user, PASSWORD, "SCRAM-SHA-256")
    way = login(guarded, "SCRAM-SHA-256", USERNAME=user, PASSWORD=PASSWORD)
    there = {f"OUTPUT__{name}": text for name, text in way.items()}
    mirror = Mirror(sandbox, guarded, folder, partitions=3, **there)
    mirror.create()
    mirror.write(*given(30))
    return mirror


def test_between_two_clusters_the_rights_of_each_are_enough_and_what_is_missing_is_named(
    sandbox, guarded, tmp_path, unique
):
    user = unique("mirror")
    mirror = _mirror(sandbox, guarded, tmp_path, user)
    rights = _target_needed(mirror)
    guarded.rights.allow(user, *rights)
    mirror.run_to_end()
    mirror.close()
    assert mirror.anomalies() == []
    (said,) = rights_seen(mirror)
    assert said == ("PASS", "the permissions that the brokers report are sufficient")
    groups, others = _parted(tuple(rights), "GROUP")
    withdrawn = [one for one in others if (one.resource, one.operation) != ("TOPIC", "WRITE")]
    for missing in (withdrawn, groups):  # without the group's an id in use would not be tried out
        withdraw(guarded.rights, user, *missing)
        await_(partial(_all_named, mirror, missing), PATIENCE_S, lambda: str(rights_seen(mirror)))


def _target_needed(mirror: Mirror) -> list[Right]:
    return [one for one in target_rights(settings_of(mirror)) if not one.optional]


def test_without_any_one_of_the_rights_there_a_mirror_leaves_with_the_reason_and_wrote_nothing(
    sandbox, guarded, tmp_path, unique
):
    started = []
    for number, (code, words) in enumerate(LEFT_OUT_THERE):
        user = unique("deprived")
        mirror = _mirror(sandbox, guarded, tmp_path / user, user)
        rights = _target_needed(mirror)
        assert len(rights) == len(LEFT_OUT_THERE)
        guarded.rights.allow(user, *(one for one in rights if one != rights[number]))
        started.append((mirror, mirror.worker(INSTANCE), code, words))
    for mirror, worker, code, words in started:
        await_exit(worker, code, *words)
        mirror.close()
        assert mirror.outputs() == []


def _all_named(mirror: Mirror, missing: list[Right]) -> bool:
    said = str([saw for verdict, saw in rights_seen(mirror) if verdict == "FAIL"])
    return all(
        f"lacks {one.operation} on {one.resource.lower()} {one.name}: " in said for one in missing
    )


def rights_seen(mirror: Mirror) -> list[tuple[str, str]]:
    """Return what the doctor says of rights on the cluster of the outputs."""
    servers = mirror.environment()["HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS"]
    return [
        (one["verdict"], one["saw"])
        for one in findings(mirror)
        if (one["check"], one["cluster"]) == ("rights", servers)
    ]


def test_a_login_that_is_refused_is_named_without_the_password(route):
    ((check, saw),) = failed(route, KAFKA__SECURITY__PASSWORD="hunter2")  # noqa: S106
    assert check == "brokers"
    assert "_AUTHENTICATION" in saw
    assert "hunter2" not in saw


def test_brokers_that_we_do_not_trust_are_named(route, tmp_path):
    other = Authority(tmp_path / "other").ca_file
    ((check, saw),) = failed(route, KAFKA__SECURITY__CA_FILE=str(other))
    assert check == "brokers"
    assert "certificate" in saw


# -- A broker's file that does nothing: the cluster's dynamic default precedes it ----------


@pytest.fixture(scope="module")
def ignoring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A cluster that was formatted with 1, and whose broker's file says 2 since."""
    folder = tmp_path_factory.mktemp("sandbox")
    with Sandbox(redis=False, data_dir=folder):
        pass
    with Sandbox(redis=False, data_dir=folder, properties={"min.insync.replicas": "2"}) as sandbox:
        yield sandbox


def durability(route: PipelineUnderTest) -> list[dict[str, Any]]:
    done = run_captured(
        [sys.executable, "-m", "hapax", "doctor", "--json"], env=route.environment()
    )
    findings = json.loads(done.stdout)["findings"]
    return [one for one in findings if one["check"] == "durability" and "files" in one["saw"]]


def test_what_the_file_says_and_what_is_served_are_named_with_what_works(
    route_of, ignoring: Sandbox
):
    route = route_of(servers=ignoring)
    [found] = durability(route)
    assert found["verdict"] == "WARN"
    assert "files say min.insync.replicas=2, the cluster serves 1" in found["saw"]
    assert "--entity-default --add-config min.insync.replicas=2" in found["fix"]

    named = "--entity-type brokers --entity-default --add-config min.insync.replicas=2"
    kafka_configs(ignoring.bootstrap_servers, *named.split())
    assert durability(route) == [], "the fix that is named works"
