#!/usr/bin/env bash
# PySpark 4.2.1 (Java 17 or newer on PATH): spark.sql.streaming.stateStore.providerClass of a query
# that has a checkpoint is that of its first start, whatever the session says now. A stateful query
# that is "moved to RocksDB" by its setting keeps all state on the heap; the setting reads back as
# RocksDB, the query runs without an error, and only a warning in the log says so.
# Expected: the new provider, or a refusal as for other changes of a checkpoint.
# Seen:
#   first start, default:             provider HDFSBacked
#   second start, setting RocksDB:    provider HDFSBacked
#   a new checkpoint, same session:   provider RocksDB
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyspark==4.2.1 
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import json, os, pathlib, sys, time
from pyspark.sql import SparkSession, functions as f

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
work = pathlib.Path(sys.argv[1])
source = work / "in"
source.mkdir()

start_s = time.time() - 60

def put(number, *rows):
    """Write a file, which is the input of one micro-batch; Spark takes files by their age."""
    file = source / f"{number}.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(file, (start_s + number, start_s + number))

def run(name, pipeline, mode="append"):
    """Run what there is to its end; return the rows that came out and the progress of each batch."""
    stream = spark.readStream.schema("id string, t timestamp").option("maxFilesPerTrigger", 1)
    out = []
    query = (
        pipeline(stream.json(str(source))).writeStream.outputMode(mode)
        .foreachBatch(lambda batch, _: out.extend(batch.collect()))
        .option("checkpointLocation", str(work / name)).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    return out, query.recentProgress

SETTING = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

def provider(name):
    _, progress = run(name, lambda rows: rows.dropDuplicates(["id"]))
    metrics = progress[-1]["stateOperators"][0]["customMetrics"]
    return "RocksDB" if any(one.startswith("rocksdb") for one in metrics) else "HDFSBacked"

put(1, {"id": "a"})
seen = [provider("checkpoint")]
put(2, {"id": "a"}, {"id": "b"})
spark.conf.set(SETTING, ROCKSDB)
seen.append(provider("checkpoint"))
assert spark.conf.get(SETTING) == ROCKSDB
seen.append(provider("new-checkpoint"))
starts = "first start, default:", "second start, setting RocksDB:", "a new checkpoint, same session:"
for start, found in zip(starts, seen):
    print(f"{start:33} provider {found}")
assert seen == ["HDFSBacked", "HDFSBacked", "RocksDB"], "it has changed"
END_OF_PROGRAM
export PYSPARK_PYTHON="$work/venv/bin/python"
"$work/venv/bin/python" "$work/ask.py" "$work" 2> "$work/log" || { tail -n 20 "$work/log" >&2; exit 1; }
