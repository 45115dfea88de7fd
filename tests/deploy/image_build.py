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
import tempfile
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deploy.bundled import bill
from hapax.sandbox import SandboxError, machine
from hapax.sandbox.machine import say
from tests.deploy import base_image, tools
from tests.deploy.buildah import Buildah
from tests.deploy.steps import ROOT, lineage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.deploy.buildah import Image

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
    store = _stored() / "store"
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
    decides = repr((base_image.RECIPE, lineage("build"), locks))
    return f"image-{hashlib.sha256(decides.encode()).hexdigest()[:12]}"


def _stored() -> Path:
    return tools.cached(_name(), _fill)


def _fill(folder: Path) -> None:
    """Build the base, and the worker on it, whose layers stay."""
    for program in ("buildah", "mmdebstrap"):
        if machine._find(lambda: machine._on_path(program), (program,)) is None:  # noqa: B023 - called at once
            raise SandboxError(f"{program} is missing. Run: sudo apt-get install {program}")
    archive = folder.parent / "base.tar"
    say("Putting the base together, from packages of Debian: a minute or four")
    base_image.write(archive)
    with tempfile.TemporaryDirectory(prefix="hapax-image-") as work:
        buildah = Buildah(folder / "store", Path(work))
        buildah.import_base(archive)
        say("Building the worker's image: a minute or four")
        buildah.build("worker", "localhost/hapax")


def main() -> None:
    """Build a target, write what is in it, and say how large it is."""
    parser = argparse.ArgumentParser(prog="python -m tests.deploy.image_build")
    parser.add_argument("target", nargs="?", default="worker", choices=("worker", "spark"))
    target = parser.parse_args().target
    with built(target) as image:
        whole, added = (round(image.size(place) / _MEGABYTE) for place in ("", "opt/hapax"))
        write = ROOT / "build/image" / f"{target}.cdx.json"
        write.parent.mkdir(parents=True, exist_ok=True)
        write.write_text(json.dumps(bill(image.root), indent=2) + "\n")
        say(f"What is in it: {write.relative_to(ROOT)}")
        say(f"{target}: {whole} MB, of which /opt/hapax is {added} MB")


if __name__ == "__main__":
    try:
        main()
    except SandboxError as error:
        raise SystemExit(str(error)) from error
