"""Images by buildah in a folder of their own: no daemon, no registry, no rights but root's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from hapax.sandbox import SandboxError
from tests.deploy.steps import ROOT

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
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, cwd=ROOT
        )
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
