"""A root file system that stands for the image the Dockerfile begins with: Debian and a Python.

No registry of packages has images, so it is put together from Debian's packages, and laid out as
the image python:3.13-slim-trixie is: the interpreter, its headers and pip below /usr/local.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

from hapax.sandbox import SandboxError

if TYPE_CHECKING:
    from pathlib import Path

RELEASE: Final = "trixie"
_TIMEOUT_S: Final = 1800.0
# What the interpreter is linked with, and what the image brings on top of the smallest Debian.
_PACKAGES: Final = (
    "ca-certificates,netbase,tzdata,media-types,libbz2-1.0,libexpat1,libffi8,liblzma5,"
    "libncursesw6,libreadline8t64,libsqlite3-0,libssl3t64,libuuid1,zlib1g"
)
# Debian's Python installs to /usr/local/local when it lies below /usr/local: one is the other.
_PYTHON: Final = """
ln -s . /usr/local/local
mkdir /tmp/packages
cd /tmp/packages
apt-get download -qq python3.13 python3.13-minimal python3.13-venv python3-pip-whl \
    libpython3.13-minimal libpython3.13-stdlib libpython3.13-dev
for each in *.deb; do dpkg-deb -x "$each" .; done
mv usr/bin/python3.13 /usr/local/bin/
mv usr/lib/python3.13 /usr/local/lib/
mv usr/include/python3.13 /usr/local/include/
mv usr/include/*/python3.13/pyconfig.h /usr/local/include/python3.13/
rm -f /usr/local/lib/python3.13/EXTERNALLY-MANAGED
bundled=/usr/local/lib/python3.13/ensurepip/_bundled
mkdir -p "$bundled"
mv usr/share/python-wheels/pip-*.whl "$bundled/"
ln -s "$bundled" /usr/share/python-wheels
cd /
rm -r /tmp/packages
ln -s python3.13 /usr/local/bin/python3
ln -s python3 /usr/local/bin/python
set -- "$bundled"/pip-*.whl
python "$1/pip" install --quiet --no-index --root-user-action ignore "$1"
"""
RECIPE: Final = f"{RELEASE} {_PACKAGES} {_PYTHON}"
"""All that decides what is in it, but for Debian's patches."""


def write(archive: Path) -> None:
    """Write it as a tar archive, which takes a minute or four."""
    _run([
        "mmdebstrap", "--variant=minbase", f"--include={_PACKAGES}",
        '--aptopt=Acquire::Languages "none"',
        *(f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in ("doc", "locale", "man")),
        f"--customize-hook=chroot \"$1\" /bin/sh -eu -c '{_PYTHON}'",
        RELEASE, str(archive), _mirror(),
    ])  # fmt: skip


def _mirror() -> str:
    """Return from where this machine has its Debian."""
    wanted = "$(ORIGIN) $(LABEL) $(REPO_URI)"
    lines = _run(["apt-get", "indextargets", "--format", wanted, "Created-By: Packages"])
    found = [line.split() for line in lines.splitlines()]
    for origin, label, *where in found:
        if (origin, label) == ("Debian", "Debian"):
            return where[0]
    raise SandboxError("apt-get on this machine knows no archive of Debian")


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise SandboxError(f"{command[0]} failed: {done.stderr[-2000:]}")
    return done.stdout
