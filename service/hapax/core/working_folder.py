"""The working folder as a place of business code: it hides no module of Python or of a library."""

from __future__ import annotations

import os
import sys
import sysconfig
from contextlib import suppress
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

_NEEDED = frozenset(
    {
        "authlib", "cachetools", "certifi", "confluent_kafka", "fastavro", "google", "hapax",
        "hapax_fast", "httpx2", "jsonschema_rs", "msgspec", "numpy", "opentelemetry", "pandas",
        "prometheus_client", "pyarrow", "pydantic", "pyspark", "redis", "rich", "structlog",
        "typer", "uvloop",
    }
)  # fmt: skip
"""Libraries that may be imported later than business code."""


def import_from_here() -> None:
    """Let modules of the working folder be imported, after all that Python knows already."""
    with suppress(OSError):  # the folder was removed
        folder = str(Path.cwd())
        if sys.path[:1] in ([""], [folder]):  # python -m
            del sys.path[0]
        if not sys.flags.safe_path and folder not in sys.path:
            sys.path.append(folder)


def import_own(name: str) -> None:
    """Import a package of the working folder although another one of its name is installed.

    ``name``: without dots. Raises ImportError for the name of a module that the service needs.
    """
    file = _hidden(name)
    if file is None:
        return
    if problem := shadowed(name):
        raise ImportError(problem)
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


def shadowed(name: str) -> str:
    """Say that a file of the working folder has the name of a module that the service needs."""
    file = _hidden(name)
    if file is None or not (name in sys.stdlib_module_names or name in {*_NEEDED, *sys.modules}):
        return ""
    other = "Python" if name in sys.stdlib_module_names else "a library"
    return f"{file} has the name of a module of {other}, which is imported instead: rename the file"


def shadowed_files() -> list[str]:
    with suppress(OSError):
        names = {each.stem for each in Path.cwd().iterdir() if each.suffix in {"", ".py"}}
        return [problem for name in sorted(names) if (problem := shadowed(name))]
    return []


def _hidden(name: str) -> Path | None:
    """Return the file of a module in the working folder that an import does not find."""
    try:
        here = Path.cwd()
        files = (here / f"{name}.py", here / name / "__init__.py")
        file = next((each for each in files if each.is_file()), None)
        if file is None or str(here) not in sys.path:
            return None
        found = find_spec(name)
    except (OSError, ValueError):
        return None
    return None if found is None or found.origin == str(file) else file


def import_path() -> str:
    """Return a ``PYTHONPATH`` with all that this process imports from, but the standard library.

    Every interpreter has that of its own version. A process that is started later inherits the
    variable, and another version would read the modules of this one: "SRE module mismatch".
    """
    own = {Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib")}
    zipped = "python{}{}.zip".format(*sys.version_info)
    own |= {place for one in own for place in (one / "lib-dynload", one.parent / zipped)}
    known = [entry for entry in sys.path if entry and Path(entry) not in own]
    return os.pathsep.join(dict.fromkeys(known))
