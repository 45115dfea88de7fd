"""The image: what its file says, and every step of it that can be carried out without an engine."""

import os
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import hapax
from hapax.commands.config import markdown
from tests.deploy.steps import ROOT, Build, Step, environment, exec_form, lineage, stages
from tests.kit.commands import output_of, run_captured
from tests.kit.proof import at_length

# Libraries are installed, and perhaps fetched: that takes a while where much else goes on.
pytestmark = pytest.mark.timeout(900)

FINAL = ("worker", "spark")
USER = 65532


def test_the_linter_has_nothing_to_say():
    done = run_captured([Path(sys.executable).with_name("hadolint"), ROOT / "Dockerfile"])
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", FINAL)
def test_an_image_runs_as_nobody_and_gets_its_signals(name):
    steps = [step for stage in lineage(name) for step in stage.steps]
    last = {step.word: step.text for step in steps}
    assert last["USER"] == f"{USER}:{USER}"
    assert exec_form(last["ENTRYPOINT"])[0] in {"hapax", "python"}
    assert exec_form(last["CMD"]) == ["run"]
    assert last["STOPSIGNAL"] == "SIGTERM"
    # Nothing is done as root behind it.
    assert steps.index(Step("USER", last["USER"])) > max(
        number for number, step in enumerate(steps) if step.word in {"RUN", "COPY"}
    )


@pytest.mark.parametrize("name", FINAL)
def test_an_image_says_what_it_is(name):
    stage = stages()[name]
    [labels] = stage.texts("LABEL")
    told = set(re.findall(r"org\.opencontainers\.image\.([a-z.]+)=", labels))
    wanted = "title description version revision source licenses base.name"
    assert told == set(wanted.split())
    assert f"VERSION={hapax.__version__}" in stage.texts("ARG")


def test_the_base_can_be_given_by_its_digest():
    text = (ROOT / "Dockerfile").read_text()
    assert re.findall(r"(?m)^ARG PYTHON_IMAGE=(\S+)$", text)
    assert {stage.base for stage in stages().values()} - set(stages()) == {"${PYTHON_IMAGE}"}


def test_whatever_is_installed_is_locked():
    runs = [text for stage in stages().values() for text in stage.texts("RUN")]
    installs = [
        part
        for text in runs
        for part in text.split("&&")
        if re.search(r"\bpip\b.* install ", part) and "--no-deps wheels/" not in part
    ]
    assert len(installs) == 4
    assert [part for part in installs if "--require-hashes" not in part] == []
    # Source archives could run anything; pyspark is the one that has no wheel.
    into_image = [part for part in installs if "/opt/hapax" in part]
    assert [part for part in into_image if "--only-binary :all:" not in part] == []


def test_final_images_take_only_what_was_built():
    for name in FINAL:
        copied = [text for stage in lineage(name) for text in stage.texts("COPY")]
        own = [text for text in copied if "--from=build" not in text]
        assert own == (["deploy/spark_pod.py /opt/hapax/"] if name == "spark" else [])
        installed = " ".join(text for stage in lineage(name) for text in stage.texts("RUN"))
        assert set(re.findall(r"--no-install-recommends (\S+)", installed)) <= {
            "openjdk-21-jre-headless"
        }
        assert "pip uninstall" in installed
        # Java's package fails on a base without pages of the manual.
        assert installed.count("mkdir -p /usr/share/man/man1") == installed.count("openjdk-21")


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """The root of the worker's image, read-only; where other users may look, as in a container."""
    root = Path(tempfile.mkdtemp(prefix="hapax-image-")).resolve()
    root.chmod(0o755)
    try:
        build = Build(root)
        for stage in lineage("build"):
            build.carry_out(stage)
        shutil.rmtree(root / "build")
        (root / "app").mkdir()
        lock(root)
        yield root
    finally:
        for folder, _, _ in os.walk(root):
            Path(folder).chmod(0o755)
        shutil.rmtree(root)


def lock(root: Path) -> None:
    """Take every right to write away; root itself would not mind, so the tests run as nobody."""
    for path in [root, *root.rglob("*")]:
        if not path.is_symlink():
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222)


def without_rights() -> list[str]:
    """Return what goes before a command of root, so that it may no more than the image's user.

    That user must reach the interpreter; where it lies in root's home, root without any capability
    has to do, for whom write-protected files are write-protected, too.
    """
    if os.geteuid() != 0:
        return []
    interpreter = Path(sys.base_prefix).resolve()
    reachable = all(folder.stat().st_mode & stat.S_IXOTH for folder in interpreter.parents)
    user = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if reachable else []
    return ["setpriv", *user, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]


def listing(root: Path) -> set[tuple[str, int]]:
    return {(str(path), path.lstat().st_mtime_ns) for path in root.rglob("*")}


def run(image: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the entry point as in the image: its variables, its user, nothing else."""
    given = {
        name: value.replace("/opt/", f"{image}/opt/").replace("/app", f"{image}/app")
        for name, value in environment("worker").items()
    }
    given["PATH"] = given["PATH"].replace(":$PATH", ":/usr/local/bin:/usr/bin:/bin")
    [entry] = [text for stage in lineage("worker") for text in stage.texts("ENTRYPOINT")]
    [program] = exec_form(entry)
    command = [*without_rights(), image / "opt/hapax/bin" / program, *words]
    return run_captured(command, cwd=image / "app", env={**given, **variables}, timeout=120)


@pytest.mark.deep
def test_what_the_file_builds_runs_as_nobody_on_a_root_that_is_read_only(image):
    before = listing(image)
    version = run(image, "version")
    assert (version.returncode, version.stdout.strip()) == (0, hapax.__version__), version.stderr
    reference = run(image, "config", "reference", "--format", "markdown")
    assert (reference.returncode, reference.stdout) == (0, markdown())
    refused = run(image, "run")
    assert refused.returncode == 2
    assert "HAPAX_APP is not set" in refused.stderr
    # Every library is there: the service goes as far as asking brokers, of which there are none.
    settings = {
        "HAPAX_APP": "image",
        "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "HAPAX_INPUT__TOPICS": "in",
        "HAPAX_OUTPUT__TOPIC": "out",
        "HAPAX_TELEMETRY__PORT": "0",
        "HAPAX_STOP_AFTER__RECORDS": "1",  # a run without a bound would wait for them
    }
    started = run(image, "run", **settings)
    assert started.returncode == 3, started.stdout + started.stderr
    assert "preflight_refused" in started.stdout + started.stderr
    assert listing(image) == before


@pytest.mark.deep
def test_nothing_that_builds_or_installs_is_in_the_image(image):
    programs = {path.name for path in (image / "opt/hapax/bin").iterdir()}
    assert "hapax" in programs
    assert [name for name in programs if name.startswith(("pip", "wheel", "hatch"))] == []
    [packages] = (image / "opt/hapax/lib").glob("python3*/site-packages")
    found = {path.name for path in packages.iterdir()}
    assert {"hapax", "confluent_kafka", "redis"} <= found
    assert found & {"pip", "setuptools", "wheel", "hatchling", "pytest", "pyspark"} == set()
    # Measured: 71.0 MB, of which jsonschema-rs (a TLS client of its own), cryptography (imported by
    # the registry's client with or without OAuth) and librdkafka are 38: none can be left out.
    files = [each for each in packages.rglob("*") if each.is_file() and each.suffix != ".pyc"]
    assert sum(each.stat().st_size for each in files) < 72_500_000


@pytest.mark.deep
@pytest.mark.parametrize("command", ["demo", "sandbox", "dev"])
def test_sandbox_demo_and_dev_are_not_in_the_image_and_their_commands_say_so(image, command):
    [package] = (image / "opt/hapax/lib").glob("python3*/site-packages/hapax")
    assert not (package / command).exists()
    done = run(image, command, *(["up"] if command == "sandbox" else []))
    assert done.returncode == 2, done.stderr
    assert "pip install '.[sandbox]'" in done.stderr


@pytest.mark.deep
def test_bytecode_is_compiled_beforehand_and_never_asks_for_its_source(image):
    compiled = list((image / "opt/hapax/lib").rglob("hapax/**/*.pyc"))
    compiled += (image / "opt/hapax/lib").rglob("site-packages/redis/*.pyc")
    assert len(compiled) > 100
    # PEP 552: the flags behind the magic number; 1 is a hash that nobody checks.
    assert {struct.unpack("<I", path.read_bytes()[4:8])[0] for path in compiled} == {1}


@pytest.mark.deep
def test_the_base_is_left_without_an_installer(image):
    [step] = stages()["runtime"].texts("RUN")
    [remove, clean] = step.split(" && ")
    assert clean == "rm -rf /usr/local/lib/python3.*/ensurepip"
    # The environment that built the image stands for the base: it has pip as the base has it.
    base = image / "opt/build"
    assert list(base.glob("lib/python3*/site-packages/pip"))
    for folder, _, _ in os.walk(base):
        Path(folder).chmod(0o755)
    script = remove.replace("python ", f"{base}/bin/python ", 1)
    subprocess.run(["/bin/sh", "-c", script], check=True)
    assert list(base.glob("lib/python3*/site-packages/pip*")) == []
    assert list(base.glob("bin/pip*")) == []


@pytest.mark.long
@pytest.mark.rounds
@at_length
@pytest.mark.timeout(1800)  # a source archive of 400 MB, unpacked, packed and unpacked
def test_what_the_file_builds_for_spark_has_all_that_spark_needs(tmp_path):
    build = Build(tmp_path)
    for stage in lineage("build-spark"):
        build.carry_out(stage)
    place = tmp_path / "opt/hapax"
    script = (
        "import pyspark, pandas, pyarrow\n"
        "from hapax.engines.spark.session import connector_jars\n"
        f"print(pyspark.__version__, len(connector_jars('{place}/jars')))"
    )
    assert output_of([place / "bin/python", "-c", script]).split() == ["4.3.0", "4"]
