"""Code for executors: the user's module or package, and whatever else is to go with it.

A folder becomes an archive that Spark unpacks where executors search for modules first, so that
other files of the folder arrive as files; a module goes as it is. Spark's own server on the driver
hands them out, to executors that come later, too.
"""

from __future__ import annotations

import importlib.util
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hapax.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark import SparkContext

OURS = "hapax"
_SETTING = "HAPAX_SPARK__SHIP"
_ENVIRONMENTS = (".tar.gz", ".tgz")
_SKIPPED = frozenset({"__pycache__"})
_EPOCH = (1980, 1, 1, 0, 0, 0)


class Ware(NamedTuple):
    """One thing to ship.

    name         what executors import it as; of a packed environment: its folder
    environment  it holds a Python, which executors run
    """

    name: str
    path: Path
    environment: bool = False


def code_of(function: str | None) -> Iterator[Ware]:
    """Yield nothing for Hapax itself, or for code in no folder (a zip of spark-submit)."""
    top = (function or OURS).partition(":")[0].partition(".")[0]
    if top != OURS:
        yield from package(top)


def package(top: str) -> Iterator[Ware]:
    """Yield the folders of a package, each once, or the file of a module."""
    spec = importlib.util.find_spec(top)
    if spec is None:
        return
    if spec.submodule_search_locations is not None:
        # A folder without __init__.py is found once for each entry of the path that leads to it.
        places = list(dict.fromkeys(map(Path, spec.submodule_search_locations)))
    else:
        places = [Path(spec.origin or "")]
    yield from (Ware(top, place) for place in places if place.exists() and place.name)


def named(paths: Sequence[str]) -> list[Ware]:
    """Return what HAPAX_SPARK__SHIP names; raise ConfigurationError for what cannot be shipped."""
    problems, wares = [], []
    for text in paths:
        path = Path(text).expanduser().resolve()
        if path.is_dir() or path.suffix in {".py", ".zip", ".egg"}:
            wares.append(Ware(path.name.removesuffix(".py"), path))
        elif path.name.endswith(_ENVIRONMENTS):
            wares.append(Ware(path.name.partition(".")[0], path, environment=True))
        else:
            problems.append(
                f"{_SETTING}: {text} is no folder, .py, .zip or .egg file, and no packed "
                f"environment ({' or '.join(_ENVIRONMENTS)})"
            )
            continue
        if not path.exists():
            problems.append(f"{_SETTING}: {text} does not exist")
        elif wares[-1].environment and not _has_python(path):
            problems.append(
                f"{_SETTING}: {text} holds no bin/python: pack an environment with venv-pack or"
                " conda-pack, or name code as a folder or a .zip file"
            )
    if problems:
        raise ConfigurationError(problems)
    return wares


def ship(context: SparkContext, wares: Sequence[Ware], folder: Path) -> None:
    """Hand things out from ``folder``; a packed environment becomes the Python of executors."""
    for number, ware in enumerate(wares):
        if ware.path.is_dir():
            archive = folder / f"{number}-{ware.name}.zip"
            _zip(ware.path, archive)
            context.addArchive(f"{archive}#{ware.name}")
        elif ware.environment:
            context.addArchive(f"{ware.path}#{ware.name}")
            context.pythonExec = f"./{ware.name}/bin/python"
        elif ware.path.suffix == ".py":
            context.addFile(str(ware.path))
        else:
            context.addPyFile(str(ware.path))


def _zip(folder: Path, target: Path) -> None:
    """Write a folder's files; the same files make the same archive."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and not _SKIPPED.intersection(inside.parts):
                archive.writestr(
                    zipfile.ZipInfo(str(inside), _EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED
                )


def _has_python(path: Path) -> bool:
    try:
        with tarfile.open(path) as archive:
            return any(name.removeprefix("./") == "bin/python" for name in archive.getnames())
    except (OSError, tarfile.TarError):
        return False
