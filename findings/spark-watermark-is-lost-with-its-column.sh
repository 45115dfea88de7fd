#!/usr/bin/env bash
# PySpark 4.2.1 (Java 17 or newer on PATH): a watermark sits in the metadata of its column, and an
# expression that writes the column under its own name takes it away: withWatermark("t"), then
# withColumn("t", date_trunc("second", "t")), then dropDuplicates. The query runs, its progress still
# shows the watermark moving, and no state is ever removed and no row is late.
# Expected: an error, or no watermark in the progress, where no operator has one.
# Seen, four micro-batches with times an hour apart, then one row of the first hour:
#   as it came: watermark 2026-01-01T02:59:00.000Z, ids kept 1, late 1
#   cut to seconds: watermark 2026-01-01T02:59:00.000Z, ids kept 5, late 0
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

for hour in range(4):
    put(hour, {"id": f"of hour {hour}", "t": f"2026-01-01T{hour:02}:00:00Z"})
put(4, {"id": "late", "t": "2026-01-01T00:00:00Z"})
seen = {}
for name in "as it came", "cut to seconds":
    def pipeline(rows):
        marked = rows.withWatermark("t", "1 minute")
        if name == "cut to seconds":
            marked = marked.withColumn("t", f.date_trunc("second", "t"))
        return marked.dropDuplicates(["id", "t"])

    _, progress = run(name.replace(" ", "-"), pipeline)
    operators = [one for batch in progress for one in batch["stateOperators"]]
    late = sum(one["numRowsDroppedByWatermark"] for one in operators)
    watermark = progress[-1]["eventTime"]["watermark"]
    seen[name] = watermark, operators[-1]["numRowsTotal"], late
    print(f"{name}: watermark {watermark}, ids kept {seen[name][1]}, late {late}")
moved = "2026-01-01T02:59:00.000Z"
assert seen == {"as it came": (moved, 1, 1), "cut to seconds": (moved, 5, 0)}, "it has changed"
END_OF_PROGRAM
export PYSPARK_PYTHON="$work/venv/bin/python"
"$work/venv/bin/python" "$work/ask.py" "$work" 2> "$work/log" || { tail -n 20 "$work/log" >&2; exit 1; }
