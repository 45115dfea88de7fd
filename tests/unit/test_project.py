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

from hapax.dev import create_project
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
    assert dict(re.findall(r"(\w+)://([^,]+)", kafka["KAFKA_ADVERTISED_LISTENERS"])) == {
        "INSIDE": inside.kafka.bootstrap_servers,
        "OUTSIDE": settings.kafka.bootstrap_servers,
    }
    assert service["ports"] == [f"127.0.0.1:{settings.telemetry.port}:{settings.telemetry.port}"]
    assert int(service["stop_grace_period"].removesuffix("s")) > settings.shutdown.timeout_ms / 1000


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


def test_what_compose_mounts_has_the_alerts_and_the_dashboard_with_its_source_of_data(project):
    compose = yaml.safe_load((project / "compose.yaml").read_text())
    services, configs = compose["services"], compose["configs"]
    given = {
        name: yaml.safe_load(one.get("content") or (project / one["file"]).read_text())
        for name, one in configs.items()
    }
    mounts = [(name, one) for name in services for one in services[name].get("configs", [])]
    files = {
        (name, one["target"].removeprefix("/etc/")): given[one["source"]] for name, one in mounts
    }
    config = files["prometheus", "prometheus/prometheus.yml"]
    [job] = config["scrape_configs"]
    assert job["job_name"] == "new-orders"  # a pipeline is a job
    assert job["static_configs"] == [{"targets": ["new-orders:9464"]}]
    assert config["rule_files"] == ["/etc/prometheus/alerts.yaml"]
    alerts = yaml.safe_load((ROOT / "deploy/monitoring/alerts.yaml").read_text())
    assert files["prometheus", "prometheus/alerts.yaml"] == alerts
    [source] = files["grafana", "grafana/provisioning/datasources/hapax.yaml"]["datasources"]
    assert (source["url"], source["isDefault"]) == ("http://prometheus:9090", True)
    [provider] = files["grafana", "grafana/provisioning/dashboards/hapax.yaml"]["providers"]
    assert provider["options"]["path"] == "/etc/grafana/dashboards"
    dashboard = files["grafana", "grafana/dashboards/hapax.json"]
    assert dashboard == json.loads((ROOT / "deploy/monitoring/dashboard.json").read_text())
    # Each panel asks the source that the variable names: by default the first of its type.
    variable = dashboard["templating"]["list"][0]
    kind = (variable["name"], variable["type"], variable["query"])
    assert kind == ("datasource", "datasource", source["type"])
    asked = re.findall(r'"uid": "([^"]+)"', json.dumps(dashboard["panels"]))
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
