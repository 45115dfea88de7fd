"""What the pages name exists. Each kind of statement is checked in every page, and planted once."""

import ast
import re
import tomllib
from typing import Any

import pytest

import hapax
from hapax import context, publish, spark, testing
from hapax.core.errors import ExitCode
from hapax.processing.transform import load_form
from hapax.testing import Pipeline
from tests.meta.statements import (
    ROOT,
    Check,
    commands,
    console,
    current,
    events,
    files,
    images,
    links,
    metrics,
    names,
    proofs,
    settings,
    targets,
)

PAGES = [
    *[ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")],
    ROOT / "bench/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    ROOT / "tests/fault/README.md",
]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", text)


PLANTED: dict[Check, str] = {
    links: "[a](docs/nowhere.md) [b](README.md#no-such-title)",
    files: "`service/hapax/core/nothing.py`",
    settings: "HAPAX_INPUT__TOPIC HAPAX_NOTHING__*",
    metrics: "`hapax_nothing_total`",
    targets: "`make nothing`",
    commands: "`hapax nothing` and `hapax sandbox up --nothing`",
    proofs: "`test_nothing`",
    events: "the lines `service_ready` and `nothing_happened`",
    console: "$ hapaxx run",
    names: "`KafkaSource.nothing_at_all`",
    images: "`docker build --target nothing --build-arg REVISION=1 .`",
}


@pytest.mark.parametrize("check", PLANTED, ids=lambda check: check.__name__)
def test_what_the_pages_name_exists(check):
    assert [
        (str(page.relative_to(ROOT)), name)
        for page in PAGES
        for name in check(current(page.read_text()), page)
    ] == []


@pytest.mark.parametrize("check", PLANTED, ids=lambda check: check.__name__)
def test_what_does_not_exist_is_noticed(check):
    found = list(check(PLANTED[check], ROOT / "README.md"))
    assert len(found) == (2 if check in {links, settings, commands} else 1)


def test_a_table_of_renames_may_show_the_old_names_and_only_those():
    table = "| setting before | now |\n|---|---|\n| `HAPAX_OLD` | `HAPAX_NEW` |\n\nHAPAX_REST\n"
    assert list(settings(current(table), ROOT / "CHANGELOG.md")) == ["HAPAX_NEW", "HAPAX_REST"]


EXAMPLE = "# HAPAX_TRANSFORM="
"""Begins a block that names its own transform and settings: test_transform_guide.py runs it."""


def python_blocks() -> list[Any]:
    return [
        pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(page.read_text(), "python"), start=1)
        if not block.startswith(EXAMPLE)
    ]


@pytest.mark.parametrize("block", python_blocks())
def test_python_in_the_pages_runs_and_its_transforms_answer(block):
    if "confluent_kafka" in block:  # it writes to a broker: its names are checked, and no more
        ast.parse(block)
        block = "\n".join(re.findall(r"(?m)^(?:import|from) .+$", block))
    found: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, "page", "exec"), found)  # noqa: S102 - the pages are ours
    if "transform" in found:
        value = b'{"id": "a-1", "customer": {"id": 7}, "lines": [{"price": 250, "count": 2}]}'
        typed = dict.fromkeys(("HAPAX_INPUT__FORMAT", "HAPAX_OUTPUT__FORMAT"), "json")
        result = Pipeline(found["transform"], typed if "Record[" in block else {}).run(value)
        assert result.outputs
        assert result.dead_letters == []


def test_the_index_has_every_page():
    index = (ROOT / "docs/README.md").read_text()
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 40
    assert [page for page in pages if f"({page})" not in index] == ["README.md"]


def test_the_page_of_the_api_has_every_public_name():
    page = (ROOT / "docs/api.md").read_text()
    public = {name for one in (hapax, context, publish, spark, testing) for name in one.__all__}
    missing = {name for name in public if not re.search(rf"(`|(?m:^)### ){name}\b", page)}
    assert missing == {"__version__"}


def test_every_exit_code_is_explained():
    told = re.findall(r"(?m)^## Exit code (\d):", (ROOT / "docs/runbooks.md").read_text())
    assert sorted({int(code) for code in told} | {0}) == sorted(ExitCode)


def test_the_steps_of_the_crash_table_are_those_of_the_code():
    code = (ROOT / "service/hapax/processing/exactly_once.py").read_text()
    steps = re.findall(r"(?m)^(\d)\. (\w+)  ", code)
    assert len(steps) == 7
    page = (ROOT / "docs/guarantees.md").read_text()
    rows = re.findall(r"(?m)^\| (\d) (\w+)", page)
    assert [row for row in rows if row[0] != "6"] == [step for step in steps if step[0] != "6"]
    design = (ROOT / "docs/design.md").read_text()
    assert re.findall(r"(?m)^(\d)\. \*\*(\w+)\*\* ", design) == steps


def test_the_maps_of_the_folders_show_those_that_are_there():
    folders = sorted(file.parent.name for file in (ROOT / "service/hapax").glob("*/__init__.py"))
    layers = (ROOT / "docs/design.md").read_text().partition("\n## Layers\n")[2]
    shown = "\n".join(line.partition("  ")[0] for line in blocks(layers, "")[0].splitlines())
    assert sorted(re.findall(r"\w+", shown)) == folders
    lines = (hapax.__doc__ or "").split("\n\n")[-1].splitlines()
    second = lines[0].index("engines")
    named = [line[at:].split()[0] for line in lines for at in (0, second) if line[at:].strip()]
    assert sorted(named) == folders


def test_badges_agree_with_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    badges = dict(re.findall(r"\[!\[(\w+): ([^]]+)\]", (ROOT / "README.md").read_text()))
    assert badges["License"] == project["license"]
    assert badges["Python"] == project["requires-python"].removeprefix(">=") + " and newer"
    spark = project["optional-dependencies"]["spark"][-1]
    assert spark.startswith(f"pyspark>={badges['PySpark']}.0,")
    assert f"| Kafka | {badges['Kafka']} |" in (ROOT / "docs/versions.md").read_text()


def test_built_in_transforms_are_listed_and_load():
    listed = re.findall(
        r"`(hapax\.transforms\.\w+:\w+)`", (ROOT / "docs/transforms.md").read_text()
    )
    assert len(listed) == 4
    assert all(callable(load_form(name).function) for name in listed)
