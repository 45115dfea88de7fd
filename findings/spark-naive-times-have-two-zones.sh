#!/usr/bin/env bash
# PySpark 4.2.1 (Java 17 or newer on PATH): a datetime without a zone means local time of the Python
# process in one half of its interface and the zone of the session (spark.sql.session.timeZone) in the
# other. The same naive value, returned by a plain and by a pandas function, is two instants; the same
# row, fetched by collect() and by toPandas(), two times of day.
# Expected: one zone, that of the session.
# Seen, session in UTC, process in America/New_York:
#   read, of 12:00 UTC:    collect 08:00  plain UDF 08:00  toPandas 12:00  pandas UDF 12:00
#   written, of 12:00:     rows 16:00  plain UDF 16:00  literal 16:00  pandas frame 12:00  pandas UDF 12:00
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyspark==4.2.1 pandas==2.3.3 pyarrow==26.0.1
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import datetime as dt
import pandas as pd
from pyspark.sql import SparkSession, functions as f

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
noon = spark.sql("select timestamp'2026-07-01 12:00:00' t")
naive = dt.datetime(2026, 7, 1, 12)

@f.udf("string")
def plain(time):
    return f"{time:%H:%M}"

@f.pandas_udf("string")
def vectors(times: pd.Series) -> pd.Series:
    return times.dt.strftime("%H:%M")

@f.udf("timestamp")
def plain_noon(_):
    return naive

@f.pandas_udf("timestamp")
def vector_noon(times: pd.Series) -> pd.Series:
    return pd.Series([naive] * len(times))

def hour(frame, column="t"):
    return frame.select(f.date_format(column, "HH:mm")).collect()[0][0]

read = {
    "collect": f"{noon.collect()[0].t:%H:%M}",
    "plain UDF": noon.select(plain("t")).collect()[0][0],
    "toPandas": f"{noon.toPandas().t[0]:%H:%M}",
    "pandas UDF": noon.select(vectors("t")).collect()[0][0],
}
written = {
    "rows": hour(spark.createDataFrame([(naive,)], "t timestamp")),
    "plain UDF": hour(noon.select(plain_noon("t").alias("t"))),
    "literal": hour(noon.select(f.lit(naive).alias("t"))),
    "pandas frame": hour(spark.createDataFrame(pd.DataFrame({"t": [naive]}), "t timestamp")),
    "pandas UDF": hour(noon.select(vector_noon("t").alias("t"))),
}
for name, seen in ("read, of 12:00 UTC:", read), ("written, of 12:00:", written):
    print(f"{name:22}", "  ".join(f"{way} {time}" for way, time in seen.items()))
assert list(read.values()) == ["08:00", "08:00", "12:00", "12:00"], "it has changed"
assert list(written.values()) == ["16:00", "16:00", "16:00", "12:00", "12:00"], "it has changed"
END_OF_PROGRAM
export PYSPARK_PYTHON="$work/venv/bin/python"
TZ=America/New_York "$work/venv/bin/python" "$work/ask.py" "$work" 2> "$work/log" || { tail -n 20 "$work/log" >&2; exit 1; }
