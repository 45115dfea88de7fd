#!/usr/bin/env bash
# PySpark 4.2.1 (Java 17 or newer on PATH): a row whose event time is null meets three fates, none of
# them an error, and numRowsDroppedByWatermark is 0 in all of them. A window drops it; a
# groupBy(time) counts it and neither emits nor removes it; dropDuplicatesWithinWatermark takes it as of
# 1970 and forgets its id with the next micro-batch, so that the same id passes again.
# Expected: an error, or rows dropped as late and counted as such.
# Seen, of a, b, b without a time, then later times, then b without a time once more:
#   window:                        0 of 4 counted, dropped by watermark 0
#   groupBy(time):                 0 of 4 emitted, dropped by watermark 0, 1 of 2 groups left is theirs
#   dropDuplicatesWithinWatermark: a, b, b (one id twice), dropped by watermark 0
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

put(1, {"id": "first", "t": "2026-01-01T00:00:00Z"}, {"id": "a"}, {"id": "b"}, {"id": "b"})
put(2, {"id": "second", "t": "2026-01-01T01:00:00Z"})
put(3, {"id": "third", "t": "2026-01-01T02:00:00Z"}, {"id": "b"})

def dropped(progress):
    return sum(one["numRowsDroppedByWatermark"] for batch in progress for one in batch["stateOperators"])

def late(rows):
    return rows.withWatermark("t", "1 minute")

out, progress = run("window", lambda rows: late(rows).groupBy(f.window("t", "1 hour")).count(), "update")
window = sum(row["count"] for row in out) - 3, dropped(progress)
print(f"window:                        {window[0]} of 4 counted, dropped by watermark {window[1]}")

out, progress = run("group", lambda rows: late(rows).groupBy("t").count())
left = progress[-1]["stateOperators"][0]["numRowsTotal"]
group = sum(row["count"] for row in out if row.t is None), dropped(progress), left
print(f"groupBy(time):                 {group[0]} of 4 emitted, dropped by watermark {group[1]},"
      f" {left - 1} of {left} groups left is theirs")

out, progress = run("distinct", lambda rows: late(rows).dropDuplicatesWithinWatermark(["id"]))
distinct = [row.id for row in out if row.t is None], dropped(progress)
print(f"dropDuplicatesWithinWatermark: {', '.join(distinct[0])} (one id twice), dropped by watermark {distinct[1]}")
assert window == (0, 0), "it has changed"
assert group == (0, 0, 2), "it has changed"
assert distinct == (["a", "b", "b"], 0), "it has changed"
END_OF_PROGRAM
export PYSPARK_PYTHON="$work/venv/bin/python"
"$work/venv/bin/python" "$work/ask.py" "$work" 2> "$work/log" || { tail -n 20 "$work/log" >&2; exit 1; }
