"""What ``hapax init`` writes: a project that is sound as it is."""

from __future__ import annotations

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
def test_its_code_has_types(project):
    files = ("pipeline.py", "test_pipeline.py")
    ran(project, "mypy", "--strict", "--config-file", "/dev/null", *files)


def test_every_command_that_its_files_name_exists_with_its_options(project):
    typed = [
        line
        for file in sorted(project.iterdir())
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
    scraped = yaml.safe_load(compose["configs"]["prometheus"]["content"])
    [target] = scraped["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target == "new-orders:9464"


def test_the_image_copies_what_its_ignore_file_lets_through_and_sets_what_is_in_the_settings(
    project,
):
    text = (project / "Dockerfile").read_text()
    copied = re.findall(r"(?m)^COPY (?!--from)(\S+) (?:\$\{CA_FILE\} )?\S+$", text)
    let_through = re.findall(r"(?m)^!(\S+)", (project / ".dockerignore").read_text())
    assert sorted(copied) == sorted(let_through)
    assert (
        f"HAPAX_TRANSFORM={read_env_file(project / 'settings.env', {})['HAPAX_TRANSFORM']}" in text
    )
    base = re.search(r"(?m)^ARG PYTHON_IMAGE=(\S+)$", (ROOT / "Dockerfile").read_text())
    assert base is not None
    assert f"ARG PYTHON_IMAGE={base[1]}" in text
    assert re.search(r"(?m)^ENTRYPOINT \[\"hapax\"\]$", (ROOT / "Dockerfile").read_text())
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert hadolint
    output_of([hadolint, project / "Dockerfile"])
