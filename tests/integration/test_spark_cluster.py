"""Records form on a standalone cluster: what executors are given, and what they are asked first.

The executors know the installed libraries and nothing of the driver's import path.
"""

import json
import signal
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import psutil  # type: ignore[import-untyped] # it carries no types
import pytest

from hapax.core.errors import ExitCode
from hapax.sandbox import Sandbox, SandboxError
from hapax.sandbox.servers import executor_properties
from tests.kit.commands import run_captured
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.proof import at_length
from tests.kit.spark_process import SparkProcess, executors, runs_tasks, send, spark_variables
from tests.kit.topics import Given
from tests.kit.waiting import PATIENCE_S, await_

VALUES = [b"v%d" % number for number in range(200)]
RULE = """
from hapax import Output


def rule(record):
    return Output(record.value.upper())
"""
PACKAGE = """
from pathlib import Path

from hapax import Output
from prices import PRICE

MARK = Path(__file__).with_name("mark.txt").read_bytes()


def rule(record):
    return Output(MARK + PRICE + record.value)
"""
WHERE = """
import sys

from hapax import Output


def rule(record):
    return Output(sys.prefix.encode())
"""
FRAMES = """
from pyspark.sql import functions as f


def upper(value):
    return bytes(value).upper()


def pipeline(records):
    return records.select(f.udf(upper, "binary")("value").alias("value"))
"""


@pytest.fixture(scope="module")
def servers():
    """A broker, a Redis, and a Spark cluster of two workers."""
    sandbox = Sandbox(spark_workers=2)
    try:
        sandbox.start()
    except SandboxError as error:
        pytest.fail(str(error), pytrace=False)
    yield sandbox
    sandbox.stop()


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A folder of code that only the driver knows."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "rule.py").write_text(RULE, encoding="utf-8")
    (folder / "where.py").write_text(WHERE, encoding="utf-8")
    (folder / "frames.py").write_text(FRAMES, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


@pytest.fixture
def route_of(route_of, servers, code):
    def make(**settings: str | None) -> PipelineUnderTest:
        ours = {
            "SPARK__MASTER": servers.spark.url,
            "SPARK__PROPERTIES": properties(),
            "TRANSFORM": "rule:rule",
            "STOP_AFTER__AT_END": "true",
            "SPARK__EXECUTOR_TIMEOUT": "2m",  # where many want the same two cores
        }
        route: PipelineUnderTest = route_of(
            2, servers=servers, kind=SparkProcess, **{**ours, **settings}
        )
        route.write(*(Given(value, partition=number % 2) for number, value in enumerate(VALUES)))
        return route

    return make


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory):
    """A Python that has the libraries of this one, and no Hapax."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    # A .pth file adds a folder, but does not read the .pth files in it, which name the checkout.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return str(folder / "bin" / "python")


def properties(**more: str) -> str:
    return json.dumps(executor_properties() | more)


def package(folder: Path) -> None:
    """Write a package with a file that is no code, and a module beside it that it needs."""
    shop = folder / "shop"
    shop.mkdir()
    (shop / "__init__.py").touch()
    (shop / "rules.py").write_text(PACKAGE, encoding="utf-8")
    (shop / "mark.txt").write_bytes(b"shop-")
    (folder / "prices.py").write_text("PRICE = b'1-'", encoding="utf-8")


def values(route: PipelineUnderTest) -> list[bytes]:
    return sorted(record.value or b"" for record in route.outputs())


def refused(route: PipelineUnderTest, code: int) -> str:
    driver = route.worker()
    driver.ends_with(code)
    (line,) = driver.lines("service_stopped")
    assert "Traceback" not in driver.text()
    assert set(route.committed().values()) == {None}, "nothing was consumed"
    return str(line["reason"])


# -- code ---------------------------------------------------------------------------------


def test_a_module_that_executors_do_not_have_is_shipped_to_them(route_of):
    route = route_of()
    driver = route.run_to_end()
    assert values(route) == sorted(value.upper() for value in VALUES)
    (shipped,) = driver.lines("code_shipped")
    (ready,) = driver.lines("executors_ready")
    assert shipped["names"] == ["rule"]
    assert ready["executors"], "each says its name"


def test_a_package_is_shipped_with_its_files_and_what_it_needs_beside_it_is_asked_for(
    route_of, code
):
    package(code)
    route = route_of(TRANSFORM="shop.rules:rule")
    reason = refused(route, ExitCode.CONFIGURATION)
    assert "cannot import shop.rules:rule: ModuleNotFoundError: No module named 'prices'" in reason
    assert "HAPAX_SPARK__SHIP" in reason
    route.run_to_end(SPARK__SHIP=str(code / "prices.py"))
    assert values(route) == sorted(b"shop-1-" + value for value in VALUES)


def test_hapax_itself_is_shipped_to_executors_that_lack_it(route_of, bare_python, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", bare_python)
    route = route_of()
    driver = route.run_to_end()
    assert [line["names"] for line in driver.lines("code_shipped")] == [["rule"], ["hapax"]]
    assert values(route) == sorted(value.upper() for value in VALUES)


def test_a_packed_environment_becomes_the_python_of_executors(route_of, bare_python, tmp_path):
    packed = tmp_path / "their-own.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(Path(bare_python).parents[1], ".")
    route = route_of(SPARK__SHIP=str(packed), TRANSFORM="where:rule")
    (shipped, _) = route.run_to_end().lines("code_shipped")
    assert shipped["names"] == ["where", "their-own"]
    assert {Path(prefix.decode()).name for prefix in values(route)} == {"their-own"}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.rounds
@at_length
def test_a_backfill_and_its_audit_run_the_shipped_function(route_of, servers):
    route = route_of(STOP_AFTER__AT_END=None, SPARK__EXECUTOR_TIMEOUT="2m")
    environment = {**spark_variables(), **route.environment(), "HAPAX_INSTANCE": "b-0"}

    def typed(command: str) -> str:
        words = ["--engine", "spark", "--master", servers.spark.url, "--json"]
        end = run_captured(
            [sys.executable, "-m", "hapax", command, *words],
            env=environment,
            timeout=4 * PATIENCE_S,
        )
        assert end.returncode == 0, end.stdout[-2000:] + end.stderr[-2000:]
        return end.stdout

    typed("backfill")
    assert values(route) == sorted(value.upper() for value in VALUES)
    assert json.loads(typed("audit"))["totals"]["with_outputs"] == len(VALUES)


def test_a_dataframe_calls_functions_of_its_package_on_executors(route_of, tmp_path):
    route = route_of(
        TRANSFORM=None,
        DEAD_LETTER__TOPIC=None,
        SPARK__DATAFRAME="frames:pipeline",
        SPARK__CHECKPOINT=(tmp_path / "checkpoint").as_uri(),
    )
    route.run_to_end()
    assert values(route) == sorted(value.upper() for value in VALUES)


@pytest.mark.parametrize(
    ("ship", "told"),
    [
        ("nowhere.py", "nowhere.py does not exist"),
        ("rule.txt", "is no folder, .py, .zip or .egg file"),
        ("empty.tar.gz", "holds no bin/python"),
    ],
)
def test_what_cannot_be_shipped_is_refused_before_spark_starts(route_of, code, ship, told):
    (code / "rule.txt").touch()
    (code / "empty.tar.gz").touch()
    assert told in refused(route_of(SPARK__SHIP=str(code / ship)), ExitCode.CONFIGURATION)


# -- executors that will not do -----------------------------------------------------------


OLDER = {
    "hapax": '__version__ = "0.0.9"',
    "confluent_kafka": "def libversion(): return ('1.9.0', 0)",
}
OLDER_TOLD = "runs hapax 0.0.9, librdkafka 1.9.0, and the driver hapax 0.1.0, librdkafka 2."
OTHER = {
    "sitecustomize": """
import sys


class Version(tuple):
    major, minor, micro, releaselevel, serial = 3, 10, 0, "final", 0


sys.version_info = Version((3, 10, 0, "final", 0))
"""
}
WITHOUT = {"confluent_kafka": "import absent"}


@pytest.mark.parametrize(
    ("modules", "told"),
    [
        (OLDER, OLDER_TOLD),
        (OTHER, "another Python than the driver"),
        (WITHOUT, "cannot import what hapax needs: No module named 'absent'"),
    ],
)
def test_executors_with_other_versions_end_the_start_with_both_sides(
    route_of, tmp_path, modules, told
):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for module, content in modules.items():
        (theirs / f"{module}.py").write_text(content, encoding="utf-8")
    route = route_of(SPARK__PROPERTIES=properties(**{"spark.executorEnv.PYTHONPATH": str(theirs)}))
    assert told in refused(route, ExitCode.CONFIGURATION)


def test_a_python_that_executors_do_not_have_is_named(route_of, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    assert "/nowhere/python" in refused(route_of(), ExitCode.PREFLIGHT)


# -- a cluster that gives none ------------------------------------------------------------


def test_a_cluster_without_a_free_executor_ends_the_start_and_says_what_was_asked(route_of):
    asked = properties(**{"spark.executor.memory": "8g"})
    route = route_of(SPARK__PROPERTIES=asked, SPARK__EXECUTOR_TIMEOUT="12s")
    reason = refused(route, ExitCode.PREFLIGHT)
    assert "no executor of HAPAX_SPARK__MASTER=spark://127.0.0.1" in reason
    assert "spark.executor.memory 8g" in reason
    assert route.workers[0].lines("executors_awaited"), "it was not silent meanwhile"


def test_a_master_that_is_away_ends_the_start_and_one_that_comes_back_continues_it(
    route_of, servers
):
    master = servers.spark.master
    master.kill()
    try:
        reason = refused(route_of(SPARK__EXECUTOR_TIMEOUT="11s"), ExitCode.PREFLIGHT)
        assert "takes no connections: start Spark's master there" in reason
        route = route_of()
        driver = route.worker()
        await_(lambda: bool(driver.lines("executors_awaited")), 40, driver.text)
    finally:
        master.start()
        servers.spark.await_ready()
    driver.ends_with(0)
    assert values(route) == sorted(value.upper() for value in VALUES)


def test_a_start_that_waits_for_executors_can_be_stopped(route_of):
    driver = route_of(SPARK__PROPERTIES=properties(**{"spark.executor.memory": "8g"})).worker()
    await_(lambda: bool(driver.lines("executors_awaited")), 60, driver.text)
    assert driver.terminate(20) == 0, driver.text()
    assert "Traceback" not in driver.text()


def test_an_executor_that_dies_before_it_has_answered_does_not_end_the_start(
    route_of, servers, code
):
    (code / "late.py").write_text(f"import time\n\ntime.sleep(4)\n{RULE}", encoding="utf-8")
    route = route_of(TRANSFORM="late:rule", SPARK__EXECUTOR_TIMEOUT="90s")
    driver = route.worker()
    pids = {worker.pid for worker in servers.spark.workers}

    def asked() -> list[psutil.Process]:
        return [each for each in executors(pids) if runs_tasks(each)]

    await_(asked, what=driver.text)
    assert not driver.lines("executors_ready"), "it was killed too late"
    assert sum(send(each, signal.SIGKILL) for each in asked()) > 0
    driver.ends_with(0)
    assert values(route) == sorted(value.upper() for value in VALUES)
