#!/usr/bin/env bash
# PySpark 4.2.1 (Java 17 or newer on PATH), in a process whose zone has summer time: of two rows an
# hour apart in the hour that the clock repeats, collect() gives the right datetimes (fold=0, fold=1),
# and createDataFrame() of those very rows writes one instant for both, because it does not look at
# fold. A driver that fetches rows and writes them again moves an hour of events back by an hour.
# Expected: rows that were collected come back as they were.
# Seen, in America/New_York:
#   collected: 01:30 fold=0, 01:30 fold=1
#   written again: 2026-11-01 05:30:00, 2026-11-01 05:30:00 (were 05:30 and 06:30 UTC)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyspark==4.2.1 
cat > "$work/ask.py" <<'END_OF_PROGRAM'
from pyspark.sql import SparkSession, functions as f

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
rows = spark.sql(
    "select timestamp'2026-11-01 05:30:00Z' t union all select timestamp'2026-11-01 06:30:00Z' order by t"
).collect()
again = spark.createDataFrame(rows, "t timestamp").select(f.col("t").cast("string")).collect()
collected, written = [row.t for row in rows], [row.t for row in again]
print("collected:", ", ".join(f"{time:%H:%M} fold={time.fold}" for time in collected))
print("written again:", ", ".join(written), "(were 05:30 and 06:30 UTC)")
assert [time.fold for time in collected] == [0, 1], "it has changed"
assert written == ["2026-11-01 05:30:00"] * 2, "it has changed"
END_OF_PROGRAM
export PYSPARK_PYTHON="$work/venv/bin/python"
TZ=America/New_York "$work/venv/bin/python" "$work/ask.py" "$work" 2> "$work/log" || { tail -n 20 "$work/log" >&2; exit 1; }
