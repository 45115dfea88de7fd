"""What goes to executors: which code, as which archives."""

import sys
import zipfile
from pathlib import Path
from typing import Any, cast

import pytest

from hapax.core.errors import ConfigurationError
from hapax.engines.spark import executors
from hapax.engines.spark.executors import Ware


class FakeContext:
    """Notes what it is given."""

    pythonExec = "python"  # noqa: N815 - Spark's name

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []

    def addArchive(self, path: str) -> None:  # noqa: N802 - Spark's name
        self.given.append(("archive", path))

    def addFile(self, path: str) -> None:  # noqa: N802 - Spark's name
        self.given.append(("file", path))

    def addPyFile(self, path: str) -> None:  # noqa: N802 - Spark's name
        self.given.append(("import", path))


@pytest.fixture
def code(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def shipped(wares: list[Ware], folder: Path) -> FakeContext:
    context = FakeContext()
    executors.ship(cast("Any", context), wares, folder)
    return context


def test_the_outermost_package_of_a_function_is_shipped_and_never_imported(code):
    (code / "shop" / "orders").mkdir(parents=True)
    (code / "shop" / "__init__.py").write_text("raise SystemExit", encoding="utf-8")
    assert list(executors.code_of("shop.orders.rules:rule")) == [Ware("shop", code / "shop")]
    assert "shop" not in sys.modules
    (code / "spaced").mkdir()  # without __init__ it is a package too
    assert list(executors.code_of("spaced.rules:rule")) == [Ware("spaced", code / "spaced")]
    for function in (None, "hapax.transforms.copy:copy", "nowhere.at.all:rule"):
        assert list(executors.code_of(function)) == []


def test_a_folder_becomes_an_archive_with_its_files_and_without_caches(code, tmp_path_factory):
    shop = code / "shop"
    (shop / "__pycache__").mkdir(parents=True)
    (shop / "__pycache__" / "rules.pyc").touch()
    (shop / "rules.py").touch()
    (shop / "rates.txt").write_text("7", encoding="utf-8")
    first, second = (tmp_path_factory.mktemp("archives") for _ in range(2))
    context = shipped([Ware("shop", shop)], first)
    shipped([Ware("shop", shop)], second)
    assert context.given == [("archive", f"{first}/0-shop.zip#shop")]
    with zipfile.ZipFile(first / "0-shop.zip") as archive:
        assert sorted(archive.namelist()) == ["rates.txt", "rules.py"]
    assert (first / "0-shop.zip").read_bytes() == (second / "0-shop.zip").read_bytes()


def test_modules_zips_and_environments_go_as_they_are(code):
    wares = [
        Ware("rule", code / "rule.py"),
        Ware("more.zip", code / "more.zip"),
        Ware("packed", code / "packed.tar.gz", environment=True),
    ]
    context = shipped(wares, code)
    assert context.given == [
        ("file", f"{code}/rule.py"),
        ("import", f"{code}/more.zip"),
        ("archive", f"{code}/packed.tar.gz#packed"),
    ]
    assert context.pythonExec == "./packed/bin/python"


def test_everything_that_cannot_be_shipped_is_named_at_once(code):
    (code / "a.txt").touch()
    with pytest.raises(ConfigurationError) as caught:
        executors.named([str(code / "a.txt"), str(code / "b.py"), str(code)])
    assert len(caught.value.problems) == 2
