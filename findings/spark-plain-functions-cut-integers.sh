#!/usr/bin/env bash
# PySpark 4.2.1 (Java 17 or newer on PATH): what a Python function returns for an int or a smallint column
# is cut to its lowest bits where it does not fit, and is null for a bigint, where the function runs
# without Arrow (useArrow=False, or spark.sql.execution.pythonUDF.arrow.enabled=false): 2147483648 becomes
# -2147483648, 2**32 + 7 becomes 7. ANSI mode is on all the while, in which Spark's own cast of the same
# number is an error, and so is the same function with Arrow.
# Expected: an error in both, as for the cast.
# Seen:
#   int 2147483648                without Arrow -2147483648, with Arrow an error, cast an error
#   int 4294967303                without Arrow 7, with Arrow an error, cast an error
#   smallint 40000                without Arrow -25536, with Arrow an error, cast an error
#   bigint 9223372036854775808    without Arrow None, with Arrow an error, cast an error
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyspark==4.2.1 pandas==2.3.3 pyarrow==26.0.1
cat > "$work/ask.py" <<'END_OF_PROGRAM'
from pyspark.sql import SparkSession, functions as f

CASES = {
    ("int", 2**31): -(2**31),
    ("int", 2**32 + 7): 7,
    ("smallint", 40_000): -25_536,
    ("bigint", 2**63): None,
}
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.conf.get("spark.sql.ansi.enabled") == "true", "it has changed"

def outcome(column):
    try:
        return spark.range(1).repartition(1).select(column).collect()[0][0]
    except Exception:
        return "an error"

for (kind, number), cut in CASES.items():
    returns = lambda _, number=number: number
    plain = outcome(f.udf(returns, kind, useArrow=False)("id"))
    arrow = outcome(f.udf(returns, kind, useArrow=True)("id"))
    cast = outcome(f.lit(f"{number}").cast("decimal(20)").cast(kind))
    print(f"{kind + ' ' + str(number):29} without Arrow {plain}, with Arrow {arrow}, cast {cast}")
    assert (plain, arrow, cast) == (cut, "an error", "an error"), "it has changed"
spark.stop()
END_OF_PROGRAM
export PYSPARK_PYTHON="$work/venv/bin/python"
"$work/venv/bin/python" "$work/ask.py" 2> "$work/log" || { tail -n 20 "$work/log" >&2; exit 1; }
