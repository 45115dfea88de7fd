"""Locked files of a Maven repository, by several connections at once, without Maven.

Whatever answers is compared with the lock: where a file comes from decides nothing else.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import urllib.request
from concurrent.futures import ThreadPoolExecutor, as_completed
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError

from hapax.jars import locked
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.progress import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.jars import Jar, Lock

REPOSITORY = "SANDBOX_MAVEN"
"""Names the Maven repository that is asked, where it is not Maven Central."""
_CONNECTIONS = 8
_TRIES = 3
_SILENCE_MAX_S = 60.0
_NOT_NOW = 500
"""The least HTTP status of a server that may answer otherwise the next time."""


def download(lock: Lock, target: Path) -> None:
    """Put every file into a folder: from the user's local Maven repository, or by the network.

    Proxies and authorities of the environment count. Raises SandboxError: what cannot be had.
    """
    missing = [jar for jar in locked(lock) if not _found_here(jar, target)]
    if not missing:
        return
    fetch = _fetch_from(os.environ.get(REPOSITORY) or _central())
    with (
        counted(lock.title, len(missing)) as advance,
        ThreadPoolExecutor(_CONNECTIONS) as connections,
    ):
        under_way = {connections.submit(fetch, jar, target / jar.file): jar for jar in missing}
        for done in as_completed(under_way):
            error = done.exception()
            if error is not None:
                connections.shutdown(wait=False, cancel_futures=True)
                raise SandboxError(
                    f"{lock.title} could not be fetched: {under_way[done].file}: {error}. "
                    f"{REPOSITORY} names a mirror; HTTPS_PROXY and SSL_CERT_FILE count."
                ) from error
            advance()


def _found_here(jar: Jar, target: Path) -> bool:
    repository = Path(os.environ.get("M2_REPO") or Path.home() / ".m2" / "repository")
    file = repository / _place(jar)
    if not _intact(jar, file):
        return False
    shutil.copyfile(file, target / jar.file)
    return True


def _place(jar: Jar) -> str:
    """Return where a Maven repository has it."""
    return f"{jar.group.replace('.', '/')}/{jar.artifact}/{jar.version}/{jar.file}"


def _intact(jar: Jar, path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256
    except OSError:
        return False


def _central() -> str:
    try:
        from jgo.constants import MAVEN_CENTRAL_URL
    except ModuleNotFoundError as error:
        raise SandboxError(
            "The library jgo, which knows the address of Maven Central, is not installed. Run: pip "
            f"install 'hapax-kafka[sandbox]' (or name a Maven repository in {REPOSITORY})"
        ) from error
    return str(MAVEN_CENTRAL_URL)


def _fetch_from(repository: str) -> Callable[[Jar, Path], None]:
    """Return what fetches a file; one that is not as locked is left, for ``check`` to refuse."""
    trust = ssl.create_default_context()
    try:
        import certifi
    except ModuleNotFoundError:
        pass  # the authorities of the system have to do
    else:
        trust.load_verify_locations(certifi.where())

    def fetch(jar: Jar, path: Path) -> None:
        url = f"{repository.rstrip('/')}/{_place(jar)}"
        for left in reversed(range(_TRIES)):
            try:
                with (
                    urllib.request.urlopen(url, timeout=_SILENCE_MAX_S, context=trust) as answer,
                    path.open("wb") as file,
                ):
                    shutil.copyfileobj(answer, file)
            except (OSError, HTTPException) as error:
                if not left or (isinstance(error, HTTPError) and error.code < _NOT_NOW):
                    raise
            else:
                if _intact(jar, path):
                    return

    return fetch
