"""The wheel: what is in it, and that it runs where nothing else of this checkout is."""

import email.parser
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

import hapax
from deploy.release import build
from tests.deploy.steps import ROOT
from tests.kit.commands import output_of, run_captured
from tests.kit.managed_process import required
from tests.kit.native_build import buildable
from tests.kit.proof import at_length
from tests.kit.topics import produce, read_back

TRANSFORM = """
from hapax import Output, Poison, Record


def transform(record: Record) -> Output:
    if record.value == b"bad":
        raise Poison("bad")
    return Output(record.value.upper())
"""

LONG_S = 900  # libraries are installed, and perhaps fetched
PURE = f"hapax_kafka-{hapax.__version__}-py3-none-any.whl"
needs_compiler = pytest.mark.skipif(not buildable(), reason="no C compiler")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return hatched(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(made: list[Path]) -> Path:
    return made[1]


def hatched(source: Path, folder: Path) -> list[Path]:
    """Build sdist and wheel, as pip does."""
    command = [sys.executable, "-m", "hatchling", "build", "-d"]
    subprocess.run([*command, folder], cwd=source, check=True, capture_output=True, timeout=120)
    return sorted(folder.iterdir(), key=lambda file: file.suffix)


def copied(checkout: Path) -> Path:
    """Copy what wheel and sdist are built from."""
    checkout.mkdir()
    for name in ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "hatch_build.py"):
        shutil.copy(ROOT / name, checkout)
    for name in ("service", "fast", "examples", "requirements"):
        ignored = shutil.ignore_patterns("__pycache__", ".*_cache")
        shutil.copytree(ROOT / name, checkout / name, ignore=ignored, copy_function=shutil.copy)
    return checkout


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.deep
@needs_compiler
def test_wheel_and_sdist_are_the_same_bytes_wherever_and_whenever_they_are_built(tmp_path):
    build(copied(tmp_path / "first"), tmp_path / "dist-1")
    for file in (elsewhere := copied(tmp_path / "elsewhere")).rglob("*"):
        os.utime(file, (1, 1))
    build(elsewhere, tmp_path / "dist-2")
    first = contents(tmp_path / "dist-1")
    assert first == contents(tmp_path / "dist-2")
    names = rf"hapax_kafka-{hapax.__version__}(-(cp3\d+)-\2-manylinux_\S+\.whl|\.tar\.gz)"
    assert [bool(re.fullmatch(names, name)) for name in first] == [True, True]


@pytest.mark.deep
def test_the_sdist_builds_the_same_wheel(made, tmp_path):
    shutil.unpack_archive(made[0], tmp_path, filter="data")
    [unpacked] = tmp_path.iterdir()
    assert not (unpacked / "tests").exists()
    hatched(unpacked, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(made[0].parent)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("compiler", "flags", "said"),
    [
        pytest.param("", "", "librdkafka ", marks=needs_compiler),
        pytest.param("", "-nostdinc", "not built: .*error: .*No such file", marks=needs_compiler),
        ("false", "", "hapax_fast was not built: the C compiler false failed"),
        ("no-cc", "", "hapax_fast was not built: the C compiler no-cc: No such file or directory"),
    ],
)
def test_the_native_path_is_in_the_wheel_or_the_service_says_why_not(
    compiler, flags, said, monkeypatch, tmp_path
):
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("CFLAGS", flags)
    wheel = hatched(ROOT, tmp_path / "dist")[1]
    native = said.startswith("librdkafka")
    assert (wheel.name == PURE) != native
    shutil.unpack_archive(wheel, tmp_path / "installed", "zip")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    # What this environment has is hidden.
    hidden = "" if native else "import sys; sys.modules['hapax_fast'] = None; "
    script = f"{hidden}from hapax.kafka import native; print(native._found(())[1])"
    shown = output_of([sys.executable, "-c", script])
    assert re.match(f".*{said}", shown), shown


def newest() -> str:
    """Return the newest Python of this machine that is at least as new as this one."""
    on_path = (shutil.which(f"python3.{minor}") for minor in range(11, 30))
    beside = Path(sys.base_prefix).parent.glob("3.*/bin/python3")
    found: dict[tuple[int, ...], str] = {}
    for path in [*filter(None, on_path), *map(str, beside)]:
        said = run_captured([path, "-c", "import sys; print(*sys.version_info[:2])"]).stdout.split()
        if said:
            found[tuple(map(int, said))] = path
    return found[max(found)] if found else sys.executable


@pytest.mark.long
@pytest.mark.timeout(LONG_S)
@pytest.mark.rounds
@pytest.mark.parametrize("which", ["this", pytest.param("newest", marks=at_length)])
def test_the_wheel_installs_and_runs_in_an_empty_environment(which, made, tmp_path):
    python = newest() if which == "newest" else sys._base_executable  # type: ignore[attr-defined] # typeshed does not know it
    # What tests before this one have set is for this interpreter.
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run([python, "-m", "venv", tmp_path / "env"], check=True, env=bare)
    programs, project = tmp_path / "env/bin", tmp_path / "orders"

    def said(folder: Path, program: str, *words: str) -> str:
        return output_of([str(programs / program), *words], cwd=folder, env=bare, timeout=LONG_S)

    # A wheel is for one version of Python; any other builds its own.
    file = str(made[which == "this"])
    said(tmp_path, "pip", "install", "--disable-pip-version-check", file, "pytest")
    assert said(tmp_path, "hapax", "--version") == f"hapax {hapax.__version__}\n"
    assert "orders/settings.env\n" in said(tmp_path, "hapax", "init", "orders")
    checked = said(project, "hapax", "--env-file", "settings.env", "config", "check")
    assert checked == "settings are fine\n"
    assert "4 passed" in said(project, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")


@pytest.mark.deep
@needs_compiler
def test_the_wheel_has_every_file_of_the_packages_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    sources = {
        str(path.relative_to(folder.parent))
        for folder in (ROOT / "service/hapax", ROOT / "fast/hapax_fast")
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert found == sources | {f"hapax_fast/_native{suffix}"}
    assert "hapax/py.typed" in found
    page = {"page.html", "page.css", "page.js", "elements.js", "uPlot.iife.min.js", "uPlot.LICENSE"}
    assert page <= {Path(name).name for name in found if "/telemetry/http/" in name}


@pytest.mark.deep
def test_the_metadata_says_what_it_is_and_under_which_licence(wheel):
    about = f"hapax_kafka-{hapax.__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        metadata = email.parser.Parser().parsestr(archive.read(f"{about}/METADATA").decode())
        licence = archive.read(f"{about}/licenses/LICENSE").decode()
        scripts = archive.read(f"{about}/entry_points.txt").decode()
    assert metadata["Name"] == "hapax-kafka"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert licence.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "hapax = hapax.__main__:main" in scripts
    assert set(metadata.get_all("Provides-Extra") or ()) == {
        "msk-iam",
        "registry",
        "sandbox",
        "spark",
        "tracing",
        "state",
        "transactions",
    }
    assert "Typing :: Typed" in (metadata.get_all("Classifier") or ())
    assert str(metadata.get_payload()).startswith("# Hapax")
    for field in ("Summary", "Author", "Keywords", "Requires-Python", "Description-Content-Type"):
        assert metadata[field], field


def test_what_installs_an_extra_names_this_distribution():
    """The index knows another project as ``hapax``, and pip would fetch it without a word."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = "|".join(project["optional-dependencies"])
    told = re.compile(rf"[\w-]*\[(?:{extras})\]")
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "service").rglob("*.py")]
    found = {match for path in files for match in told.findall(path.read_text())}
    assert {match.partition("[")[0] for match in found} == {"hapax-kafka", ""}


def installed(checkout: Path, environment: dict[str, str]) -> str:
    """Install it with the locked libraries, as the pages say; return the program."""
    quickstart = (ROOT / "docs/quickstart.md").read_text()
    readme = (ROOT / "README.md").read_text()
    [made] = re.findall(r"(?m)^\$ (python3 -m venv .+\n)\$ (\. .+\n)", readme)
    [locked] = re.findall(r"(?m)^\$ (pip install --require-hashes.+\n)\$ (pip .+)$", quickstart)
    # The interpreter of the tests stands for the user's python3.
    base = sys._base_executable  # type: ignore[attr-defined] # typeshed does not know it
    script = f'set -e\npython3() {{ {shlex.quote(base)} "$@"; }}\n{"".join([*made, *locked])}'
    command = ["/bin/sh", "-c", f"{script}\nhapax --version"]
    shown = output_of(command, cwd=checkout, env=environment, timeout=LONG_S)
    assert shown.endswith(f"hapax {hapax.__version__}\n")
    return shlex.split(made[0])[-1] + "/bin/hapax"


@pytest.mark.long
@pytest.mark.timeout(LONG_S)
def test_installed_as_the_page_says_it_runs_outside_the_checkout(sandbox, tmp_path, unique):
    checkout, home = copied(tmp_path / "checkout"), tmp_path / "home"
    home.mkdir()
    # What says where packages are from is the user's.
    bare = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    bare |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
    program = checkout / installed(checkout, bare)
    shutil.rmtree(checkout / "service")

    (home / "rule.py").write_text(TRANSFORM)
    source, target, dead = unique("in"), unique("out"), unique("dead")
    for topic in (source, target, dead):
        sandbox.create_topic(topic, 1)
    produce(sandbox.bootstrap_servers, source, b"one", b"bad", b"two")
    settings = {
        **required(unique("wheel"), sandbox.bootstrap_servers, source, target),
        "HAPAX_DEAD_LETTER__TOPIC": dead,
        "HAPAX_TRANSFORM": "rule:transform",
        "HAPAX_TELEMETRY__PORT": "0",
        "HAPAX_STOP_AFTER__RECORDS": "3",
        "PYTHONPATH": str(home),
    }
    done = run_captured([program, "run"], cwd=home, env=bare | settings, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("native (librdkafka " in done.stdout + done.stderr) == buildable()
    assert [each.value for each in read_back(sandbox.bootstrap_servers, target)] == [b"ONE", b"TWO"]
    assert [each.value for each in read_back(sandbox.bootstrap_servers, dead)] == [b"bad"]
