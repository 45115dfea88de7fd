"""What ``hapax init`` writes: a project that is sound as it is."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from hapax.dev.project import create_project
from hapax.settings import load_settings
from hapax.settings.env_file import read_env_file
from tests.kit.commands import output_of
from tests.meta.statements import known_command
from tests.meta.test_docs import blocks

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path):
    create_project("new-orders", tmp_path)
    return tmp_path / "new-orders"


def ran(project: Path, *words: str) -> str:
    return output_of([sys.executable, "-m", *words], cwd=project)


def test_no_file_has_a_place_that_is_still_to_be_filled(project):
    written = [file for file in project.rglob("*") if file.is_file()]
    assert {file.name for file in written} >= {"pipeline.py", ".gitignore", ".dockerignore"}
    assert [file.name for file in written if "@NAME@" in file.read_text()] == []


def test_its_own_tests_pass_and_its_code_has_style(project):
    assert "4 passed" in ran(project, "pytest", "-q", "-p", "no:cacheprovider")
    isolated = ("--isolated", "--line-length", "100", ".")
    ran(project, "ruff", "check", "--select", "E,F,I,B,UP", *isolated)
    ran(project, "ruff", "format", "--check", *isolated)


@pytest.mark.deep  # mypy reads all of Hapax for it, without its cache
def test_its_code_and_the_functions_of_readme_and_quickstart_have_types(project):
    files = ["pipeline.py", "test_pipeline.py"]
    for page in (ROOT / "README.md", ROOT / "docs/quickstart.md"):
        [function] = blocks(page.read_text(), "python")
        assert "def transform(record: Record[Order])" in function
        files.append(f"of_{page.stem}.py")
        (project / files[-1]).write_text(function)
    ran(project, "mypy", "--strict", "--config-file", os.devnull, *files)


def test_every_command_that_its_files_name_exists_with_its_options(project):
    typed = [
        line
        for file in sorted(project.glob("*.*"))
        for line in re.findall(r"(?m)^[#$ ]+(hapax .+?)(?: <.*)?$", file.read_text())
    ]
    assert len(typed) >= 7
    assert [line for line in typed if not known_command(line.split()[1:])] == []


def test_its_settings_are_sound_and_say_what_compose_makes(project):
    given = read_env_file(project / "settings.env", {})
    settings = load_settings(given)
    assert settings.transform == "pipeline:transform"
    compose = yaml.safe_load((project / "compose.yaml").read_text())
    service = compose["services"]["new-orders"]
    inside = load_settings({**given, **service["environment"]})
    [topics] = compose["services"]["topics"]["command"]
    named = {settings.input.topics[0], settings.output.topic, settings.dead_letter.topic}
    assert set(re.findall(r"new-orders[a-z-]*", topics)) == named
    kafka = compose["services"]["kafka"]["environment"]
    advertised = dict(re.findall(r"(\w+)://([^,]+)", kafka["KAFKA_ADVERTISED_LISTENERS"]))
    assert advertised == {
        "INSIDE": inside.kafka.bootstrap_servers,
        "OUTSIDE": settings.kafka.bootstrap_servers,
    }
    assert service["ports"] == [f"127.0.0.1:{settings.telemetry.port}:{settings.telemetry.port}"]
    grace_s = int(service["stop_grace_period"].removesuffix("s"))
    assert grace_s > settings.shutdown.timeout_ms / 1000


def test_compose_names_only_what_it_defines(project):
    compose: Mapping[str, Any] = yaml.safe_load((project / "compose.yaml").read_text())
    services = compose["services"]
    for service in services.values():
        assert service.keys() <= {
            "image", "build", "environment", "env_file", "ports", "healthcheck", "depends_on",
            "entrypoint", "command", "read_only", "cap_drop", "stop_grace_period", "restart",
            "profiles", "configs",
        }  # fmt: skip
        assert service.get("depends_on", {}).keys() <= services.keys()
        assert {one["source"] for one in service.get("configs", [])} <= compose["configs"].keys()
        assert ("image" in service) != ("build" in service)
    assert "noeviction" in services["claims"]["command"]


def mounted(project: Path, service: str) -> dict[str, Any]:
    """Return path → content of what compose mounts into a service, read as YAML."""
    compose = yaml.safe_load((project / "compose.yaml").read_text())
    given = {
        name: one.get("content") or (project / one["file"]).read_text()
        for name, one in compose["configs"].items()
    }
    mounts = compose["services"][service]["configs"]
    return {one["target"]: yaml.safe_load(given[one["source"]]) for one in mounts}


def test_prometheus_of_compose_scrapes_the_pipeline_as_a_job_and_has_the_alerts(project):
    files = mounted(project, "prometheus")
    config = files["/etc/prometheus/prometheus.yml"]
    [job] = config["scrape_configs"]
    assert job["job_name"] == "new-orders"
    assert job["static_configs"] == [{"targets": ["new-orders:9464"]}]
    alerts = yaml.safe_load((ROOT / "deploy/monitoring/alerts.yaml").read_text())
    assert [files[file] for file in config["rule_files"]] == [alerts]


def test_grafana_of_compose_finds_the_dashboard_and_its_source_of_data(project):
    files = mounted(project, "grafana")
    [source] = files["/etc/grafana/provisioning/datasources/hapax.yaml"]["datasources"]
    [provider] = files["/etc/grafana/provisioning/dashboards/hapax.yaml"]["providers"]
    compose = yaml.safe_load((project / "compose.yaml").read_text())["services"]
    host, port = source["url"].removeprefix("http://").split(":")
    assert compose[host]["ports"] == [f"127.0.0.1:{port}:{port}"]
    home = compose["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.startswith(provider["options"]["path"] + "/")
    assert files[home] == json.loads((ROOT / "deploy/monitoring/dashboard.json").read_text())
    # Each panel asks the source that the variable names, by default the first of its type.
    [variable] = [one for one in files[home]["templating"]["list"] if one["name"] == "datasource"]
    assert (variable["type"], variable["query"]) == ("datasource", source["type"])
    assert source["isDefault"] is True
    asked = re.findall(r'"uid": "([^"]+)"', json.dumps(files[home]["panels"]))
    assert set(asked) == {"${datasource}"}


def test_the_image_copies_what_its_ignore_file_lets_through_and_sets_what_is_in_the_settings(
    project,
):
    text = (project / "Dockerfile").read_text()
    copied = re.findall(r"(?m)^COPY (?!--from)(\S+) (?:\$\{CA_FILE\} )?\S+$", text)
    let_through = re.findall(r"(?m)^!(\S+)", (project / ".dockerignore").read_text())
    assert sorted(copied) == sorted(let_through)
    given = read_env_file(project / "settings.env", {})
    for name in ("HAPAX_TRANSFORM", "HAPAX_INPUT__FORMAT", "HAPAX_OUTPUT__FORMAT"):
        assert re.search(rf"(?m)^(?:ENV)? .*\b{name}={given[name]}\b", text), name
    base = re.search(r"(?m)^ARG PYTHON_IMAGE=(\S+)$", (ROOT / "Dockerfile").read_text())
    assert base is not None
    assert f"ARG PYTHON_IMAGE={base[1]}" in text
    assert re.search(r"(?m)^ENTRYPOINT \[\"hapax\"\]$", (ROOT / "Dockerfile").read_text())
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert hadolint
    output_of([hadolint, project / "Dockerfile"])
