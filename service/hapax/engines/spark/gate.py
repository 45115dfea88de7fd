"""What runs on an executor before anything of Hapax is imported there.

PySpark pickles the functions of this module by value (see executors.py), so they need nothing of
the executor but Python of the same minor version, and import nothing but the standard library until
they know what is installed. Everything that a range needs travels as bytes after them.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LACKS, REFUSED, FOUND = "lacks", "refused", "found"
"""The first word of an answer that is no report: what its second word says is a sentence."""

Answer = tuple[str, str]


def versions() -> dict[str, str]:
    """Return what this process runs; raises ImportError where a part is missing."""
    hapax: Any = importlib.import_module("hapax")
    client: Any = importlib.import_module("confluent_kafka")
    return {
        "Python": "{}.{}".format(*sys.version_info),
        "hapax": hapax.__version__,
        "librdkafka": client.libversion()[0],
    }


def source(function: str) -> str:
    """Return a fingerprint of the file that defines ``package.module:function``."""
    module = function.partition(":")[0]
    spec = importlib.util.find_spec(module)
    path = Path((spec and spec.origin) or "")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""


def ask(function: str | None, wanted: dict[str, str], rows: Iterable[Any]) -> Iterator[Answer]:
    """Answer once for a Spark partition: what this executor runs, or why that will not do."""
    for _ in rows:
        answer = _look(function, wanted)
        yield answer or (FOUND, _here())


def gated(
    function: str | None, wanted: dict[str, str], run: bytes, rows: Iterable[bytes]
) -> Iterator[Any]:
    """Run what ``run`` is on each row, in an executor that will do; answer why not otherwise."""
    seen: set[str] = sys.__dict__.setdefault("_hapax_executor", set())
    key = repr((function, wanted))
    answer = None if key in seen else _look(function, wanted)
    if answer is not None:
        yield answer
        return
    seen.add(key)
    pickling = vars(importlib.import_module("pyspark.serializers"))
    loads: Any = pickling["CloudPickleSerializer"]().loads
    yield from loads(run)(loads(row) for row in rows)


def _here() -> str:
    from pyspark import SparkFiles

    # The folder of an executor is named by its application and its own number.
    number = Path(SparkFiles.getRootDirectory()).resolve().name
    return f"{number} on {platform.node()}"


def _look(function: str | None, wanted: dict[str, str]) -> Answer | None:
    here = f"executor {_here()}"
    if importlib.util.find_spec("hapax") is None:
        return LACKS, here
    try:
        found = versions()
    except ImportError as error:
        return REFUSED, (
            f"{here} cannot import what hapax needs: {error}. Install hapax-kafka[spark] where"
            " executors run, or name a packed environment in HAPAX_SPARK__SHIP"
        )
    differing = [name for name, version in wanted.items() if found.get(name, version) != version]
    if differing:
        theirs = ", ".join(f"{name} {found[name]}" for name in differing)
        ours = ", ".join(f"{name} {wanted[name]}" for name in differing)
        return REFUSED, (
            f"{here} runs {theirs}, and the driver {ours}: give both the same, by one image or by"
            " a packed environment in HAPAX_SPARK__SHIP"
        )
    return None if function is None else _look_at(function, wanted.get("source", ""), here)


def _look_at(function: str, wanted: str, here: str) -> Answer | None:
    try:
        importlib.import_module(function.partition(":")[0])
    except BaseException as error:  # noqa: BLE001 - whatever an import of a stranger's module raises
        return REFUSED, (
            f"{here} cannot import {function}: {type(error).__name__}: {error}. Its module is "
            "shipped; name the files and folders that it needs in HAPAX_SPARK__SHIP"
        )
    found = source(function)
    if found != wanted:
        return REFUSED, (
            f"{here} has another source of {function} (sha256 {found or 'unknown'}…) than the"
            f" driver ({wanted or 'unknown'}…): remove it there, or install the same"
        )
    return None
