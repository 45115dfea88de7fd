"""Images by their own Dockerfile: ``python -m tests.deploy.image_build`` (``make image``).

What takes minutes (the base, the libraries, the compiler) is built once into the user's cache, for
each content of the build stage and of the locks. Tests build the rest on it, and nothing where it
is not there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from hapax.sandbox import SandboxError, machine
from hapax.sandbox.machine import say
from tests.deploy import tools
from tests.deploy.steps import ROOT, lineage
from tests.kit.commands import run_captured

COMMAND: Final = "make image"
_LOCKS: Final = ("requirements/build.txt", "requirements/worker.txt")
_MEGABYTE: Final = 1_000_000


def missing() -> str | None:
    """Return what keeps this machine from building an image in a short time, if anything does."""
    if os.geteuid() != 0:
        return "only root may enter the root of an image"
    if machine._on_path("buildah") is None:
        return "buildah is not installed"
    if not (machine.cache_folder() / _name()).is_dir():
        return "what lies under the image has not been built for this Dockerfile and these locks"
    return None


@contextmanager
def built(target: str = "worker") -> Iterator[Image]:
    """Build it, on what is in the cache, and unpack it; what is new is removed at the end."""
    store = tools.cached(_name(), _fill) / "store"
    # Two at a time would remove each other's.
    with machine.alone("image"), tempfile.TemporaryDirectory(prefix="hapax-image-") as work:
        buildah = Buildah(store, Path(work))
        name = f"localhost/{target}-{uuid.uuid4().hex[:8]}"
        before = buildah.identities()
        try:
            buildah.build(target, name)
            yield buildah.unpacked(name)
        finally:
            buildah.remove(before)


def _name() -> str:
    locks = [(ROOT / each).read_text() for each in _LOCKS]
    decides = repr((RECIPE, lineage("build"), locks))
    return f"image-{hashlib.sha256(decides.encode()).hexdigest()[:12]}"


def _fill(folder: Path) -> None:
    """Build the base, and the worker on it, whose layers stay."""
    for program in ("buildah", "mmdebstrap"):
        if machine._find(lambda: machine._on_path(program), (program,)) is None:  # noqa: B023 - called at once
            raise SandboxError(f"{program} is missing. Run: sudo apt-get install {program}")
    archive = folder.parent / "base.tar"
    say("Putting the base together, from packages of Debian: a minute or four")
    write_base(archive)
    with tempfile.TemporaryDirectory(prefix="hapax-image-") as work:
        buildah = Buildah(folder / "store", Path(work))
        buildah.import_base(archive)
        say("Building the worker's image: a minute or four")
        buildah.build("worker", "localhost/hapax")


def main() -> None:
    """Build a target, start it, and say how large it is."""
    parser = argparse.ArgumentParser(prog="python -m tests.deploy.image_build")
    parser.add_argument("target", nargs="?", default="worker", choices=("worker", "spark"))
    target = parser.parse_args().target
    with built(target) as image:
        whole, added = (round(image.size(place) / _MEGABYTE) for place in ("", "opt/hapax"))
        say(f"{target}: {whole} MB, of which /opt/hapax is {added} MB")
        started = run(image, "--version")
        if started.returncode:
            raise SandboxError(f"{target} does not start: {started.stdout}{started.stderr}")
        say(f"{target} starts: {started.stdout.strip()}")


_TIMEOUT_S: Final = 3600.0
_BASE: Final = "localhost/base"
_REVISION: Final = ("git", "rev-parse", "HEAD")
_ISOLATED: Final = ("--isolation", "chroot")


class Image(NamedTuple):
    """A built image, unpacked.

    name     in the store
    root     the root of its file system; a copy that may be changed
    config   user, environment, entry point and labels, as engines read them
    """

    name: str
    root: Path
    config: dict[str, Any]

    def size(self, place: str = "") -> int:
        """Return the bytes of all files below a folder of it."""
        files = [path.lstat() for path in (self.root / place).rglob("*") if not path.is_dir()]
        return sum({stat.st_ino: stat.st_size for stat in files}.values())


class Buildah:
    """The store in ``folder``. ``scratch`` holds what lasts no longer than a process."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._scratch = scratch
        self._options = ["--storage-driver", "vfs", "--root", str(folder)]
        self._options += ["--runroot", str(scratch / "run")]

    def run(self, *words: str | Path) -> str:
        """Run it; return its output. SandboxError has the end of what it said."""
        command = ["buildah", *self._options, *map(str, words)]
        done = run_captured(command, timeout=_TIMEOUT_S, cwd=ROOT)
        if done.returncode:
            said = (done.stdout + done.stderr)[-4000:]
            raise SandboxError(f"buildah {words[0]} failed:\n{said}")
        return done.stdout.strip()

    def import_base(self, archive: Path) -> None:
        """Make an image of a root file system."""
        container = self.run("from", "scratch")
        self.run("add", "--quiet", container, archive, "/")
        self.run("config", "--env", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
        self.run("commit", "--quiet", "--rm", container, _BASE)

    def build(self, target: str, name: str) -> None:
        """Build a target of the Dockerfile on the base, which is named by its digest."""
        [base] = json.loads(self.run("images", "--json", _BASE))
        revision = subprocess.check_output(_REVISION, text=True, cwd=ROOT)
        arguments = (f"PYTHON_IMAGE={_BASE}@{base['digest']}", f"REVISION={revision.strip()}")
        self.run(
            "build", *_ISOLATED, "--layers", "--pull=never", "--target", target,
            *(word for each in arguments for word in ("--build-arg", each)), *self._secrets(),
            "--tag", name, ".",
        )  # fmt: skip

    def unpacked(self, name: str) -> Image:
        """Return an image with its files; they are gone with the last ``remove``."""
        container = self.run("from", "--pull=never", "--name", name.replace("/", "-"), name)
        told = json.loads(self.run("inspect", "--type", "image", name))
        return Image(name, Path(self.run("mount", container)), told["OCIv1"]["config"])

    def identities(self) -> set[str]:
        """Return all images there are, intermediate ones included."""
        return set(self.run("images", "--all", "--quiet", "--no-trunc").split())

    def remove(self, but: set[str]) -> None:
        """Remove all containers, and all images that were not there before."""
        self.run("rm", "--all")
        if new := self.identities() - but:
            self.run("rmi", "--force", *new)

    def _secrets(self) -> list[str]:
        """Let pip in the build find packages where it finds them on this machine."""
        pip = [sys.executable, "-m", "pip", "config", "list"]
        lines = subprocess.check_output(pip, text=True).splitlines()
        told = dict(line.split("=", 1) for line in lines)
        known = {name.rpartition(".")[2]: text.strip("'") for name, text in told.items()}
        secrets = []
        if "cert" in known:
            secrets += ["--secret", f"id=ca.pem,src={known['cert']}"]
            known["cert"] = "/run/secrets/ca.pem"
        passed = [name for name in ("index-url", "extra-index-url", "cert") if name in known]
        file = self._scratch / "pip.conf"
        file.write_text("\n".join(["[global]", *(f"{name} = {known[name]}" for name in passed)]))
        return [*secrets, "--secret", f"id=pip.conf,src={file}"]


RELEASE: Final = "trixie"
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


def write_base(archive: Path) -> None:
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
    for origin, label, *where in [line.split() for line in lines.splitlines()]:
        if (origin, label) == ("Debian", "Debian"):
            return where[0]
    raise SandboxError("apt-get on this machine knows no archive of Debian")


def _run(command: list[str]) -> str:
    done = run_captured(command, timeout=_TIMEOUT_S)
    if done.returncode:
        raise SandboxError(f"{command[0]} failed: {done.stderr[-2000:]}")
    return done.stdout


_RUNS_S: Final = 120.0
# Its own mounts, which end with it. "$2" takes the place of /app, when there is one.
_ENTER: Final = """
mount --bind "$1" "$1"
mount --options remount,bind,ro "$1"
mount --rbind /proc "$1/proc"
mount --rbind /dev "$1/dev"
if [ -n "$2" ]; then mount --bind --read-only "$2" "$1/app"; fi
root=$1
shift 2
exec chroot "$root" "$@"
"""
_NO_RIGHTS: Final = ("--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


def command(
    image: Image,
    *words: str,
    entry: Sequence[str] = (),
    app: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> list[str]:
    """Return what starts it, as ``docker run --read-only --cap-drop ALL`` with these words would.

    ``entry`` in the place of its entry point; ``app`` is mounted as /app.
    Only the network and the processes are those of the machine.
    """
    user, _, group = image.config["User"].partition(":")
    given = [f"{name}={text}" for name, text in (variables or {}).items()]
    return [
        "unshare", "--mount", "--propagation", "private",
        "/bin/sh", "-euc", _ENTER, "enter", str(image.root), "" if app is None else str(app),
        "/usr/bin/setpriv", f"--reuid={user}", f"--regid={group}", *_NO_RIGHTS,
        "/usr/bin/env", "--ignore-environment", f"--chdir={image.config['WorkingDir']}",
        *image.config["Env"], *given, *(entry or image.config["Entrypoint"]), *words,
    ]  # fmt: skip


def run(image: Image, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return run_captured(command(image, *words, **more), timeout=_RUNS_S)


if __name__ == "__main__":
    try:
        main()
    except SandboxError as error:
        raise SystemExit(str(error)) from error
