#!/usr/bin/env bash
# PySpark 4.2.1 (Java 17 or newer on PATH), transformWithState in Python: a number that does not fit the
# type of its state is cut to its lowest bits, in value and in list state, and is null in a bigint, at
# update(), without an error, while ANSI mode is on. A sum in "n int" goes from 2147483647 to
# -2147483648, and what the query returns of it and what its checkpoint holds is wrong from there on.
# Expected: an error at update(), as a cast in SQL is one.
# Seen, two micro-batches that add 2147483647 and 1:
#   sum 2147483647: value int 2147483647, list smallint [-25536] for 40000, value bigint None for 2**63
#   sum 2147483648: value int -2147483648, list smallint [-25536, -25536] for 40000, value bigint None for 2**63
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyspark==4.2.1 pandas==2.3.3 pyarrow==26.0.1 protobuf==6.33.5
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import json, os, pathlib, sys, time
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB).getOrCreate()
)
assert spark.conf.get("spark.sql.ansi.enabled") == "true", "it has changed"
work = pathlib.Path(sys.argv[1])
source = work / "in"
source.mkdir()
for number, amount in enumerate((2**31 - 1, 1)):
    file = source / f"{number}.json"
    file.write_text(json.dumps({"id": "a", "amount": amount}) + "\n")
    os.utime(file, (time.time() - 60 + number,) * 2)

class Sum(StatefulProcessor):
    """Adds amounts up, and returns what it has put and what its state says then."""

    def init(self, handle):
        self.total = handle.getValueState("total", "n int")
        self.seen = handle.getListState("seen", "n smallint")
        self.large = handle.getValueState("large", "n bigint")

    def handleInputRows(self, key, rows, timers):
        for row in rows:
            total = (self.total.get()[0] if self.total.exists() else 0) + row.amount
            self.total.update((total,))
            self.seen.appendValue((40_000,))
            self.large.update((2**63,))
            seen = str([one[0] for one in self.seen.get()])
            yield Row(put=total, total=str(self.total.get()[0]), seen=seen, large=str(self.large.get()[0]))

    def close(self):
        pass

out = []
rows = spark.readStream.schema("id string, amount bigint").option("maxFilesPerTrigger", 1).json(str(source))
summed = rows.groupBy("id").transformWithState(
    Sum(), "put bigint, total string, seen string, large string", "append", "None")
query = (
    summed.writeStream.outputMode("append").foreachBatch(lambda batch, _: out.extend(batch.collect()))
    .option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True).start()
)
query.awaitTermination()
for one in out:
    print(f"sum {one.put}: value int {one.total}, list smallint {one.seen} for 40000, value bigint {one.large} for 2**63")
assert [tuple(one) for one in out] == [
    (2147483647, "2147483647", "[-25536]", "None"),
    (2147483648, "-2147483648", "[-25536, -25536]", "None"),
], "it has changed"
spark.stop()
END_OF_PROGRAM
export PYSPARK_PYTHON="$work/venv/bin/python"
"$work/venv/bin/python" "$work/ask.py" "$work" 2> "$work/log" || { tail -n 20 "$work/log" >&2; exit 1; }
