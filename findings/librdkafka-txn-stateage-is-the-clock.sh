#!/usr/bin/env bash
# librdkafka 2.16.0 (confluent-kafka 2.16.1), statistics of a transactional producer: eos.txn_stateage
# is documented as the milliseconds since the last change of txn_state, and is the monotonic clock
# itself (on Linux: the time since the machine was started). An alert on a transaction that is open
# too long fires at once and does not end; idemp_stateage of the same block is right.
# Expected: below the age of the client, and small after begin_transaction().
# Seen (numbers differ):
#   state InTransaction, client 0 s old, idemp_stateage 0 s, txn_stateage 40292 s, ts 40292 s
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import json, time
from confluent_kafka import Producer

seen = []
producer = Producer({
    "bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0,
    "transactional.id": "orders", "statistics.interval.ms": 200,
    "stats_cb": lambda text: seen.append(json.loads(text)),
})
producer.init_transactions(30)
producer.begin_transaction()
start = time.monotonic()
while time.monotonic() < start + 10 and not (seen and seen[-1]["eos"]["txn_state"] == "InTransaction"):
    producer.poll(0.2)
last = seen[-1]
eos, age_s, clock_s = last["eos"], last["age"] // 10**6, last["ts"] // 10**6
stateage_s = eos["txn_stateage"] // 1000
print(f"state {eos['txn_state']}, client {age_s} s old, idemp_stateage {eos['idemp_stateage'] // 1000} s,"
      f" txn_stateage {stateage_s} s, ts {clock_s} s")
assert eos["txn_state"] == "InTransaction"
assert eos["idemp_stateage"] // 1000 <= age_s + 1
assert abs(stateage_s - clock_s) <= 2 and stateage_s > age_s + 5, "it has changed"
producer.abort_transaction(30)
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py"
