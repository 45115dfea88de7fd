#!/usr/bin/env bash
# PySpark 4.3.0 (Java 17 or newer on PATH): a streaming sink written in Python, with
# trigger(continuous="1 second"). The query starts, says that it runs and has no exception, and the
# sink's write is never called: nothing is written for as long as the query runs. Spark's own sink gets
# rows of the same source with the same trigger, and the same sink does with a trigger by time.
# Expected: an error at the start, as for other sinks that cannot do that, or calls of write.
# Seen:
#   continuous, Python sink: active True, exception None, calls of write 0
#   continuous, memory sink: rows came True
#   by time, Python sink: calls of write came True
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyspark==4.3.0 pyarrow==26.0.1
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import pathlib, sys, time
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

work = pathlib.Path(sys.argv[1])

class Probe(DataSource):
    """A sink that keeps a file for each call of write."""

    @classmethod
    def name(cls):
        return "probe"

    def streamWriter(self, schema, overwrite):
        return Writer(self.options["calls"])

class Writer(DataSourceStreamWriter):
    def __init__(self, calls):
        self.calls = calls

    def write(self, rows):
        import os, uuid
        open(os.path.join(self.calls, uuid.uuid4().hex), "w").close()
        list(rows)
        return WriterCommitMessage()

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(Probe)

def started(kind, **trigger):
    """Start a query of rows that come by themselves; return it, and where calls are seen."""
    name = f"{kind}_{next(iter(trigger))}"
    (calls := work / f"calls-{name}").mkdir()
    rows = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    written = rows.writeStream.format(kind).queryName(name).trigger(**trigger)
    written = written.option("checkpointLocation", str(work / name)).option("calls", str(calls))
    return written.start(), calls

def within(seconds, condition):
    until = time.monotonic() + seconds
    while time.monotonic() < until and not condition():
        time.sleep(0.2)
    return condition()

query, calls = started("memory", continuous="1 second")
came = within(60, lambda: spark.table("memory_continuous").count() > 0)
query.stop()
query, calls = started("probe", processingTime="1 second")
called = within(60, lambda: any(calls.iterdir()))
query.stop()
query, calls = started("probe", continuous="1 second")
within(20, lambda: any(calls.iterdir()))
found = query.isActive, query.exception(), len([*calls.iterdir()])
query.stop()
print("continuous, Python sink: active {}, exception {}, calls of write {}".format(*found))
print(f"continuous, memory sink: rows came {came}")
print(f"by time, Python sink: calls of write came {called}")
assert (found, came, called) == ((True, None, 0), True, True), "it has changed"
spark.stop()
END_OF_PROGRAM
export PYSPARK_PYTHON="$work/venv/bin/python"
"$work/venv/bin/python" "$work/ask.py" "$work" 2> "$work/log" || { tail -n 20 "$work/log" >&2; exit 1; }
