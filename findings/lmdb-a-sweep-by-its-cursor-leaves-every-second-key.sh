#!/usr/bin/env bash
# lmdb 3.0.0 (LMDB 0.9.36): a loop over a cursor that deletes by the cursor, "for key, value in cursor:
# cursor.delete()", leaves every second key, and backwards all but the last, without an error: delete()
# moves to the next key, as its documentation says, and so does the loop. txn.delete(key) inside the same
# loops removes all. A sweep of expired state leaves half of it, and the next one half of that.
# Expected: what the loop has visited is all that there is, as with txn.delete(key).
# Seen, of 20 keys:
#   forwards, cursor.delete():   visits 10, left 10
#   backwards, cursor.delete():  visits 1, left 19
#   forwards, txn.delete(key):   visits 20, left 0
#   backwards, txn.delete(key):  visits 20, left 0
#   forwards, until none is left: left 10, 5, 2, 1, 0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet lmdb==3.0.0
cat > "$work/ask.py" <<'END_OF_PROGRAM'
import sys
import lmdb

assert lmdb.version() == (0, 9, 36), "its LMDB has changed"
store = lmdb.open(sys.argv[1] + "/store", map_size=1 << 24)

def left():
    with store.begin() as reader:
        return reader.stat(store.open_db())["entries"]

def fill():
    with store.begin(write=True) as writer:
        for number in range(20):
            writer.put(b"%04d" % number, b"value")

def swept(backwards, by_cursor):
    """Return how many keys a sweep visits."""
    visited = 0
    with store.begin(write=True) as writer:
        cursor = writer.cursor()
        for key, _ in cursor.iterprev() if backwards else cursor:
            visited += 1
            assert cursor.delete() if by_cursor else writer.delete(key)
    return visited

seen = []
for how, by_cursor in (("cursor.delete():", True), ("txn.delete(key):", False)):
    for way, backwards in (("forwards", False), ("backwards", True)):
        fill()
        seen.append((swept(backwards, by_cursor), left()))
        print(f"{way + ', ' + how:28} visits {seen[-1][0]}, left {seen[-1][1]}")
assert seen == [(10, 10), (1, 19), (20, 0), (20, 0)], "it has changed"
fill()
rounds = []
while left():
    swept(backwards=False, by_cursor=True)
    rounds.append(left())
print("forwards, until none is left: left", ", ".join(map(str, rounds)))
assert rounds == [10, 5, 2, 1, 0], "it has changed"
END_OF_PROGRAM
"$work/venv/bin/python" "$work/ask.py" "$work"
