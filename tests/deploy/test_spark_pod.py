"""What the Spark image does with the words that Spark on Kubernetes gives its pods."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.deploy.steps import ROOT

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT = ROOT / "deploy/spark_pod.py"
HOME = Path("/opt/hapax/lib/pyspark")
EXECUTOR = {
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "2",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "hapax-exec-2",
}


def script() -> Any:
    spec = importlib.util.spec_from_file_location("spark_pod", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_other_words_are_for_hapax():
    assert script().plan(["run"], {"A": "b"}, HOME) == (["hapax", "run"], {"A": "b"})
    assert script().plan(["config", "check"], {}, HOME)[0] == ["hapax", "config", "check"]
    assert script().plan([], {}, HOME)[0] == ["hapax"]


def test_a_driver_is_hapax_with_the_properties_of_its_pod():
    words = (
        "driver --properties-file /opt/spark/conf/spark.properties --class a.B local:///x.py run"
    )
    command, environ = script().plan(
        words.split(), {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.5", "HAPAX_APP": "a"}, HOME
    )
    assert command == ["hapax", "run"]
    assert environ["HAPAX_APP"] == "a"
    assert environ["PYSPARK_SUBMIT_ARGS"] == (
        "--deploy-mode client --properties-file /opt/spark/conf/spark.properties "
        "--conf spark.driver.bindAddress=10.0.0.5 pyspark-shell"
    )


def test_an_executor_is_the_jvm_that_spark_asks_for():
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 9, 0)}
    environ = {**EXECUTOR, **options, "SPARK_CLASSPATH": "/opt/spark/conf", "JAVA_HOME": "/java"}
    command, given = script().plan(["executor"], environ, HOME)
    assert given == environ
    assert command[:6] == ["/java/bin/java", "-Dn=0", "-Dn=9", "-Dn=10", "-Xms1g", "-Xmx1g"]
    assert command[6:8] == ["-cp", f"/opt/spark/conf:{HOME}/jars/*"]
    told = dict(zip(command[9::2], command[10::2], strict=True))
    assert told == {
        "--driver-url": EXECUTOR["SPARK_DRIVER_URL"],
        "--executor-id": "2",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "hapax-exec-2",
    }


def test_the_class_of_the_executor_is_in_pyspark():
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jars = Path(spec.origin).parent / "jars"
    [jar] = jars.glob("spark-kubernetes_*.jar")
    name = script()._BACKEND.replace(".", "/") + ".class"
    assert name.encode() in jar.read_bytes()  # names stand in a jar's directory as they are


def test_the_entry_point_becomes_the_program_and_stays_process_one(tmp_path):
    program = tmp_path / "hapax"
    program.write_text('#!/bin/sh\necho "$$ $* $PYSPARK_SUBMIT_ARGS"\n')
    program.chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [
        sys.executable,
        str(SCRIPT),
        "driver",
        "--properties-file",
        "/p",
        "local:///x.py",
        "run",
    ]
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate(timeout=60)
    assert said == f"{process.pid} run --deploy-mode client --properties-file /p pyspark-shell\n"
