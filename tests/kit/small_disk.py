"""A disk that is small, and what fills it: a file system in memory."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Give a file system of this size, in memory; only root may do that."""
    assert os.geteuid() == 0, "a small disk is a mount, which only root may make: run as root"
    folder.mkdir(parents=True)
    _run(f"mount -t tmpfs -o size={size_bytes} small {folder}")
    try:
        yield folder
    finally:
        _run(f"umount --lazy {folder}")


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, timeout=60)


def fill(disk: Path) -> Path:
    """Leave no byte free; return the file that holds them."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size_bytes in (1 << 20, 1 << 12):
            with suppress(OSError):
                while file.write(bytes(size_bytes)):
                    pass
    return ballast


def make_read_only(disk: Path) -> None:
    _run(f"mount -o remount,ro {disk}")
