"""Install locks and the project where the interpreter that runs this lives: by uv, or else by pip.

    .venv/bin/python requirements/install.py requirements/build.txt requirements/test.txt

uv takes a third of pip's time. It is told what pip's files and variables say of indexes, links,
authorities and proxies, and obeys variables of its own (UV_…) as well. Where it cannot be had, or
fails, pip installs everything. Hashes decide what is taken, whoever delivers it.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = Path(sys.prefix)
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install")
# Without its files: with hashes it refuses [tool.uv] of the project, whose constraints are ranges.
UV = (str(FOLDER / "bin" / "uv"), "--no-config", "pip", "install", "--python", sys.executable)
# A setting of pip, and the variable of uv that means the same.
PASSED_ON = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}
NOT_BUILT = "Without the native record path (docs/fast.md), so everything works, but slower: {}\n"


def main(locks: list[str]) -> int:
    """Install all of it; return an exit code."""
    files = [word for lock in locks for word in ("-r", lock)]
    if _uv_installs(files):
        tool: tuple[str, ...] = (*UV, "--no-cache", "--reinstall")
        environment = _as_pip()
    else:
        tool, environment = PIP, dict(os.environ)
        subprocess.run([*PIP, "--quiet", "--require-hashes", *files], cwd=ROOT, check=True)
    own = (*tool, "--quiet", "--no-deps", "--no-build-isolation")
    subprocess.run([*own, "--editable", "."], cwd=ROOT, env=environment, check=True)
    for noted in FOLDER.glob("lib/*/site-packages/hapax_kafka-*/extra_metadata/*.not_built"):
        sys.stderr.write(NOT_BUILT.format(noted.read_text(encoding="utf-8")))
    return 0


def _uv_installs(files: list[str]) -> bool:
    """Whether uv could be installed by pip and has installed the locks."""
    uv = (
        *PIP,
        "--quiet",
        "--only-binary",
        ":all:",
        "--require-hashes",
        "-r",
        "requirements/uv.txt",
    )
    if subprocess.run(uv, cwd=ROOT, check=False).returncode:
        return False
    words = (*UV, "--quiet", "--require-hashes", *files)
    return subprocess.run(words, cwd=ROOT, env=_as_pip(), check=False).returncode == 0


def _as_pip() -> dict[str, str]:
    """Return the environment in which uv does as pip is configured."""
    listed = subprocess.run(
        [*PIP[:-1], "config", "list"], capture_output=True, text=True, check=True
    )
    settings: dict[str, str] = {}
    for line in sorted(listed.stdout.splitlines(), key=_precedence):
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = " ".join(str(ast.literal_eval(value)).split())
    own = {
        variable: settings[name]
        for name, variable in PASSED_ON.items()
        if name in settings and not (variable.startswith("UV_") and variable in os.environ)
    }
    # As pip does: the best of all indexes, not the first that knows a name.
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **os.environ, **own}


def _precedence(line: str) -> int:
    """Order a setting: a command's section goes before ``global``, the environment before both."""
    section = line.partition(".")[0]
    return {"install": 1, ":env:": 2}.get(section, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
