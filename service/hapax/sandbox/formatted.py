"""Formatted data folders: Kafka's tool makes the first, and the others are copies of it.

The tool needs a JVM and 1.3 s of processor time to write two small files, which are the same for
all brokers of a version but for their ids and the time.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from base64 import urlsafe_b64encode
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_IDS, _FEATURES = "meta.properties", "bootstrap.checkpoint"


def new_id() -> str:
    """Return a random id; Kafka's tool takes one that starts with - for an option."""
    while (new := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return new


def is_formatted(data: Path) -> bool:
    """Return whether a data folder has been prepared; its ids are written last."""
    return (data / _IDS).is_file()


def of_jars(folder: Path) -> Path:
    """Return where the folder to copy is, or would be: among the jars."""
    return folder / "formatted"


def copy(template: Path, data: Path, ids: Mapping[str, object]) -> None:
    """Prepare a data folder with these ids, by their names, and a directory id of its own."""
    data.mkdir(parents=True, exist_ok=True)
    shutil.copy(template / _FEATURES, data)
    ours = {**ids, "directory.id": new_id()}
    lines = [
        line if name not in ours else f"{name}={ours[name]}"
        for line in (template / _IDS).read_text(encoding="ascii").splitlines()
        for name in [line.partition("=")[0]]
    ]
    (data / _IDS).write_text("\n".join([*lines, ""]), encoding="ascii")


def keep(data: Path, template: Path) -> None:
    """Keep a folder that the tool has just prepared; where that cannot be, it runs each time."""
    with suppress(OSError), tempfile.TemporaryDirectory(dir=template.parent) as work:
        for name in (_IDS, _FEATURES):
            shutil.copy(data / name, work)
        Path(work).rename(template)  # or another process was quicker
