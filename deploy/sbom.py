"""Bills of materials of the images (CycloneDX), from the locks: ``python -m deploy.sbom FOLDER``.

worker.json holds the libraries of the worker, spark.json those of the Spark engine and the jars of
its connector, each with the hashes that an installation compares, and the licence that it states
where it is installed. What the base image and Debian bring is not in a lock: ask the image itself
for that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from hapax import __version__
from hapax.engines.spark.session import connector
from hapax.jars import Jar, locked

ROOT = Path(__file__).parents[1]
IMAGES = ("worker", "spark")


def bill(image: str) -> dict[str, Any]:
    """Return what is in ``worker`` or ``spark``."""
    cyclonedx = Path(sys.executable).with_name("cyclonedx-py")
    options = ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible"]
    done = subprocess.run(  # noqa: S603 - of this very environment
        [cyclonedx, "requirements", *options, ROOT / "requirements" / f"{image}.txt"],
        capture_output=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    # The project file takes its version from the package, which the tool does not look into.
    found["metadata"]["component"]["version"] = __version__
    if image == "spark":
        found["components"] += [_component(jar) for jar in locked(connector())]
    stated = licences()
    for component in found["components"]:
        if licence := stated.get((component["name"], component["version"])):
            component["licenses"] = [{"license": {"name": licence}}]
    return found


def licences() -> dict[tuple[str, str], str]:
    """Return what the installed libraries state, by name and version."""
    done = subprocess.run(
        [sys.executable, "-m", "piplicenses", "--format=json"],
        capture_output=True,
        check=True,
        cwd=Path(__file__).parent,  # without the licences that pyproject.toml allows
    )
    return {
        (canonicalize_name(one["Name"]), one["Version"]): one["License"]
        for one in json.loads(done.stdout)
    }


def _component(jar: Jar) -> dict[str, Any]:
    purl = f"pkg:maven/{jar.group}/{jar.artifact}@{jar.version}?type=jar"
    return {
        "type": "library",
        "bom-ref": purl,
        "group": jar.group,
        "name": jar.artifact,
        "version": jar.version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],  # each of them, by its POM
        "hashes": [{"alg": "SHA-256", "content": jar.sha256}],
        "purl": purl,
    }


def main() -> None:
    """Write both into the folder that is named."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for image in IMAGES:
        (folder / f"{image}.json").write_text(json.dumps(bill(image), indent=2) + "\n")


if __name__ == "__main__":
    main()
