"""A project of one's own: its files, and a pipeline that runs while they are written.

No image has this: like the sandbox it is for a machine to try things on.
"""

from __future__ import annotations

import re
from pathlib import Path

from hapax.core.errors import ConfigurationError

FILES = Path(__file__).with_name("files")
_SUFFIX = ".tmpl"
_HIDDEN = ("gitignore", "dockerignore")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,60}[a-z0-9])?")
"""What a topic, a group, an image and a service of compose can all be called."""


def create_project(name: str, parent: Path) -> list[Path]:
    """Raise ConfigurationError for a name that cannot be used, and when the folder is not empty."""
    if not _NAME.fullmatch(name):
        problem = f"{name}: a project's name has lower-case letters, digits, and dashes within"
        raise ConfigurationError(problem)
    folder = parent / name
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} exists and is not an empty folder: nothing was written")
    written = []
    for template in sorted(FILES.rglob(f"*{_SUFFIX}")):
        stem = template.name.removesuffix(_SUFFIX)
        file = (folder / template.relative_to(FILES)).with_name("." * (stem in _HIDDEN) + stem)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(template.read_text().replace("@NAME@", name))
        written.append(file)
    return written
