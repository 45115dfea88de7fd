"""A real browser, driven from tests: Chromium as Debian packs it.

It is installed as the sandbox installs its servers. Where that cannot be done the tests fail, and
say what to type: a page that no browser has shown is not tested.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

from hapax.sandbox import SandboxError, machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser


def chromium() -> Path:
    """Return Debian's Chromium."""
    found = machine._find(lambda: machine._on_path("chromium"), ("chromium",))
    if found is None:
        raise SandboxError("chromium is not on the PATH. Run: sudo apt-get install chromium")
    return found


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Run a browser without windows. Its own sandbox needs rights that containers do not give."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
