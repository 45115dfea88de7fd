#!/usr/bin/env bash
# PySpark 4.2.1 (Java 17 or newer on PATH): to_json writes times to the millisecond, though Spark's have
# microseconds and from_json reads them: 123456 microseconds are .123 in the record.
# What reads the topic has another time than the table, and two events of one millisecond have one time,
# by which an id or a join takes them for one. A cast to text, and the option timestampFormat, keep them;
# timestamps without a zone are cut as well.
# Expected: the time as it is, as a cast to text has it.
# Seen, of 12:00:00.123456 and 12:00:00:
#   to_json:                     2026-07-01T12:00:00.123Z, 2026-07-01T12:00:00.000Z
#   to_json, without a zone:     2026-07-01T12:00:00.123, 2026-07-01T12:00:00.000
#   back by from_json:           2026-07-01 12:00:00.123, 2026-07-01 12:00:00
#   to_json, with SSSSSS:        2026-07-01T12:00:00.123456Z, 2026-07-01T12:00:00.000000Z
#   from_json of microseconds:   2026-07-01 12:00:00.123456
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyspark==4.2.1
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import json
from pyspark.sql import SparkSession, functions as f

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
texts = ("2026-07-01 12:00:00.123456", "2026-07-01 12:00:00")
times = spark.createDataFrame([(one,) for one in texts], "text string").select(
    f.col("text").cast("timestamp").alias("at"), f.col("text").cast("timestamp_ntz").alias("local"))

def written(column, options=None):
    rows = times.select(f.to_json(f.struct(f.col(column).alias("at")), options or {})).collect()
    return [json.loads(row[0])["at"] for row in rows]

back = times.select(f.from_json(f.to_json(f.struct("at")), "at timestamp").at.cast("string")).collect()
micros = spark.createDataFrame([('{"at":"2026-07-01T12:00:00.123456Z"}',)], "value string")
seen = {
    "to_json:": written("at"),
    "to_json, without a zone:": written("local"),
    "back by from_json:": [row[0] for row in back],
    "to_json, with SSSSSS:": written("at", {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}),
    "from_json of microseconds:": [micros.select(f.from_json("value", "at timestamp").at.cast("string")).first()[0]],
}
for name, found in seen.items():
    print(f"{name:28} {', '.join(found)}")
second = "2026-07-01T12:00:00"
assert list(seen.values()) == [
    [f"{second}.123Z", f"{second}.000Z"],
    [f"{second}.123", f"{second}.000"],
    ["2026-07-01 12:00:00.123", "2026-07-01 12:00:00"],
    [f"{second}.123456Z", f"{second}.000000Z"],
    ["2026-07-01 12:00:00.123456"],
], "it has changed"
spark.stop()
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py" 2> "$work/spark.log"
