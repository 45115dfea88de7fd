"""How large a room, a file and a constructor may become before a stranger is lost in it."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "service/hapax"
FILE_LINES_MAX = 600
"""The aim is a median of 150: a file is one thing, whole."""
WIRING_LINES_MAX = 1140
ARGUMENTS_MAX = 9
REMARKS_MAX = 78
"""Of the kind ``# noqa`` in the service: a rule that does not fit a folder is named for it once."""


def lines(folder: Path) -> dict[str, int]:
    """Return file → lines."""
    return {
        file.relative_to(SERVICE).as_posix(): len(file.read_text().splitlines())
        for file in sorted(folder.rglob("*.py"))
    }


def test_no_file_of_the_service_is_longer_than_a_reader_can_hold():
    long = {file: n for file, n in lines(SERVICE).items() if n > FILE_LINES_MAX}
    assert long == {}


def test_wiring_is_composition_only():
    assert sum(lines(SERVICE / "wiring").values()) <= WIRING_LINES_MAX


def test_no_constructor_of_the_service_takes_more_than_nine_arguments():
    found = {}
    for file in sorted(SERVICE.rglob("*.py")):
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if "def __init__" in text else ():
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                count = len(node.args.args) + len(node.args.kwonlyargs) - 1
                if count > ARGUMENTS_MAX:
                    found[f"{file.relative_to(SERVICE)}:{node.lineno}"] = count
    assert found == {}


def test_remarks_against_the_linter_stay_rare():
    remarks = sum(file.read_text().count("# noqa") for file in SERVICE.rglob("*.py"))
    assert remarks <= REMARKS_MAX
