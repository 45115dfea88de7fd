"""A process in the root of an image: read-only, as the image's user, with no right whatsoever."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.deploy.buildah import Image

_TIMEOUT_S: Final = 120.0
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


def run(
    image: Image,
    *words: str,
    entry: Sequence[str] = (),
    app: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        command(image, *words, entry=entry, app=app, variables=variables),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
