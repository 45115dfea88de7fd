"""One idea, one word: the glossary is used, and no public name is defined twice."""

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "service/hapax"
GLOSSARY = ROOT / "docs/glossary.md"


def classes() -> dict[str, list[str]]:
    """Return public class name → files that define it at module level."""
    found = defaultdict(list)
    for file in sorted(SERVICE.rglob("*.py")):
        for name in re.findall(r"(?m)^class ([^\W_]\w*)", file.read_text()):
            found[name].append(file.relative_to(SERVICE).as_posix())
    return found


def test_no_public_class_name_is_defined_twice():
    assert {name: files for name, files in classes().items() if len(files) > 1} == {}


def test_every_term_of_the_glossary_is_used_and_every_name_in_it_is_in_the_code():
    rows = re.findall(r"(?m)^\| \*\*(.+?)\*\* \| .+ \| `(\w+)` \|$", GLOSSARY.read_text())
    lines = [line for line in GLOSSARY.read_text().splitlines() if line.startswith("| **")]
    assert len(rows) == len(lines) > 20
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(page.read_text() for page in pages if page != GLOSSARY).lower()
    code = "\n".join(file.read_text() for file in sorted(SERVICE.rglob("*.py")))
    assert [term for term, _ in rows if not re.search(rf"\b{term}s?\b", text)] == []
    assert [name for _, name in rows if not re.search(rf"\b{name}\b", code)] == []


def test_no_term_of_the_glossary_is_explained_twice():
    terms = re.findall(r"(?m)^\| \*\*(.+?)\*\*", GLOSSARY.read_text())
    assert len(terms) == len(set(terms))
