#!/usr/bin/env bash
# python-dotenv 1.2.4 replaces ${NAME} in values in single quotes, too, and has no way to write the
# three characters ${N as they are: a password 'p${a}d' is read as "pd". Neither a shell, which the
# file is like, nor Docker Compose replaces anything there. $NAME without braces stays everywhere,
# and $$ stays two characters.
# Expected: single quotes keep a value as it is, as in a shell.
# Seen: dotenv_values gives pd for SINGLE, and p$a-d for NAMED; bash gives p${a}d and p-d.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install -q --disable-pip-version-check python-dotenv==1.2.4
cat > given.env <<'END'
SINGLE='p${a}d'
DOUBLE="p${a}d"
NAMED="p$a-d"
DOLLARS='a$$b'
END
env/bin/python - <<'END'
import subprocess
from importlib.metadata import version

from dotenv import dotenv_values

seen = dict(dotenv_values("given.env"))
script = "set -a; . ./given.env; printf '%s\\n' \"$SINGLE\" \"$DOUBLE\" \"$NAMED\" \"$DOLLARS\""
shell = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
print("python-dotenv", version("python-dotenv"), seen)
print("bash", shell.stdout.split("\n")[:4])
assert seen == {"SINGLE": "pd", "DOUBLE": "pd", "NAMED": "p$a-d", "DOLLARS": "a$$b"}, seen
assert shell.stdout == "p${a}d\npd\np-d\na$$b\n", shell.stdout
END
