"""The worker's image built by its own Dockerfile, entered as its user, with a read-only root."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import hapax
from hapax.sandbox import Sandbox
from tests.deploy import image_build
from tests.deploy.image_build import Image, command, run
from tests.kit.pipeline_under_test import PipelineUnderTest

# Its files are copied from layer to layer: seconds on an idle disk, minutes on a busy one.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
RECORDS = 200
_WRITE = """
for name in ("/app/x", "/tmp/x", "/opt/hapax/x", "/x"):
    try:
        open(name, "w")
    except OSError as error:
        print(error.strerror)
"""


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """The image of these sources.

    What would take minutes is never built here, in CI as well, and the summary of the run has the
    reason. What can be built and fails is a failure.
    """
    if reason := image_build.missing():
        pytest.skip(
            f"NOT CHECKED by an image of its own Dockerfile: {reason}. Once, as root on Debian: "
            f"{image_build.COMMAND}"
        )
    with image_build.built() as found:
        yield found


def settings(sandbox: Sandbox, folder: Path) -> tuple[PipelineUnderTest, dict[str, str]]:
    """Return a pipeline with a rule of its own, and the whole environment of its worker."""
    app = folder / "app"
    app.mkdir()
    rule = "from hapax import Output\ntransform = lambda record: Output(record.value.upper())\n"
    (app / "pipeline.py").write_text(rule)
    for path in (folder, app):
        path.chmod(0o755)
    (app / "pipeline.py").chmod(0o644)
    route = PipelineUnderTest(sandbox, folder)
    given = route.environment(
        TRANSFORM="pipeline:transform", STOP_AFTER__AT_END="true", TELEMETRY__TRACING="on"
    )
    given = sandbox.environment() | given
    return route, {name: text for name, text in given.items() if name.startswith("HAPAX_")}


def test_it_says_its_version_and_what_it_is(image):
    done = run(image, "--version")
    assert (done.returncode, done.stdout.split()) == (0, ["hapax", hapax.__version__]), done.stderr
    assert image.config["User"] == "65532:65532"
    labels = image.config["Labels"]
    assert "@sha256:" in labels["org.opencontainers.image.base.name"]
    assert len(labels["org.opencontainers.image.revision"]) == 40


def test_its_root_cannot_be_written_by_its_user(image):
    done = run(image, "-c", _WRITE, entry=["python"])
    assert done.stdout.splitlines() == ["Read-only file system"] * 4, done.stderr


def test_a_worker_in_it_does_all_records_on_real_servers(image, sandbox, tmp_path):
    route, variables = settings(sandbox, tmp_path)
    route.create()
    app = tmp_path / "app"
    checked = run(image, "config", "check", app=app, variables=variables)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    typo = variables | {"HAPAX_TRANSFORM": "pipeline:no"}
    assert run(image, "config", "check", app=app, variables=typo).returncode == 2
    route.write(*(f"record {number}".encode() for number in range(RECORDS)))
    done = run(image, *image.config["Cmd"], app=app, variables=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(record.value or b"" for record in route.outputs()) == sorted(
        f"RECORD {number}".encode() for number in range(RECORDS)
    )
    assert (route.lag(), route.dead()) == (0, [])


def test_a_worker_in_it_drains_when_it_is_told_to_stop(image, sandbox, tmp_path):
    route, variables = settings(sandbox, tmp_path)
    route.create()
    route.write(b"first")
    variables["HAPAX_STOP_AFTER__AT_END"] = "false"
    words = command(image, *image.config["Cmd"], app=tmp_path / "app", variables=variables)
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        route.await_outputs(1)
        worker.terminate()
        assert worker.wait(30) == 0, (tmp_path / "log").read_text()
    finally:
        worker.kill()
        worker.wait()
    assert route.lag() == 0


def test_the_native_record_path_is_in_it(image):
    done = run(image, "-c", "import hapax_fast; print(hapax_fast.__file__)", entry=["python"])
    assert "/opt/hapax/" in done.stdout, done.stderr
