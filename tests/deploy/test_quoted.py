"""Figures that a page quotes are those of the page that is written from a measurement."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.deploy.generated import QUOTING, files
from tests.deploy.quoted import quoted

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """\
## Times

Words.

| fault | n | p50 s | max s |
|---|--:|--:|--:|
| a kill | 3 | 1.5 | 2.7 |
| a freeze, long | 4 | 2.5 | 3.7 |

## Others

| rate | who | ms |
|---|---|--:|
| 1,000 | loop | 7 |
"""


def page(folder: Path, mark: str) -> Path:
    (folder / "times.md").write_text(SOURCE)
    found = folder / "page.md"
    found.write_text(f"Before.\n\n<!-- quoted from {mark} -->\n| old |\n<!-- end of quote -->\n")
    return found


def test_rows_and_columns_are_quoted_as_they_are_now(tmp_path):
    mark = "times.md / Times / a freeze, long | a kill / max s | n"
    made = quoted(page(tmp_path, mark))
    assert made == (
        f"Before.\n\n<!-- quoted from {mark} -->\n|  | max s | n |\n| --- | --: | --: |\n"
        "| a freeze, long | 3.7 | 4 |\n| a kill | 2.7 | 3 |\n<!-- end of quote -->\n"
    )


def test_a_row_whose_first_cell_is_no_name_is_named_by_two(tmp_path):
    assert "| 1,000 loop | 7 |" in quoted(page(tmp_path, "times.md / Others / 1,000 loop / ms"))


@pytest.mark.parametrize(
    "mark",
    [
        "times.md / No such title / a kill / n",
        "times.md / Times / no such row / n",
        "times.md / Times / a kill / no such column",
    ],
)
def test_what_is_not_there_any_more_is_an_error(mark, tmp_path):
    with pytest.raises(LookupError):
        quoted(page(tmp_path, mark))


@pytest.mark.parametrize("path", QUOTING, ids=lambda path: path.name)
def test_a_page_that_quotes_does_so_in_every_mark_it_has(path):
    text = path.read_text()
    assert quoted(path) == text, "run: make generate"
    marks = re.findall(r"(?m)^<!-- quoted from ", text)
    ends = re.findall(r"(?m)^<!-- end of quote -->$", text)
    assert len(marks) == len(ends) > 0
    assert len(re.findall(r"(?m)^<!-- quoted .*-->\n\|", text)) == len(marks)


def test_generated_files_are_up_to_date():
    stale = [path.name for path, text in files().items() if path.read_text() != text]
    assert stale == [], "run: make generate"
