#!/usr/bin/env bash
# confluent-kafka 2.16.1: two TopicPartition of one partition are equal, and hash alike, whatever
# their offsets, metadata and leader epochs are. A set of positions keeps the first and drops the
# rest, and "committed() == what I committed" is true at any offset.
# Expected: objects that carry an offset are equal when the offsets are; Java keeps the two apart, as
# TopicPartition (no offset) and OffsetAndMetadata (compared by offset). Its documentation is silent.
# Seen:
#   offset 1 == offset 2: True, same hash: True, other metadata: True
#   set of offsets 1 and 2: [1]
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1
cat > "$work/ask.py" <<'END_OF_PROGRAM'
from confluent_kafka import TopicPartition

first, second = TopicPartition("orders", 0, 1), TopicPartition("orders", 0, 2)
equal, same_hash = first == second, hash(first) == hash(second)
other = first == TopicPartition("orders", 0, 1, metadata="by another member")
kept = [one.offset for one in {first, second}]
print(f"offset 1 == offset 2: {equal}, same hash: {same_hash}, other metadata: {other}")
print(f"set of offsets 1 and 2: {kept}")
assert (equal, same_hash, other, kept) == (True, True, True, [1]), "it has changed"
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py"
