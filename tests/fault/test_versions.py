import pytest

from tests.fault.versions import BEGIN, END, PAGE, Row, write_table

FACTS = {"Kafka": "3.9.2", "Redis": "7.0.15", "Python": "3.11.7", "confluent-kafka": "2.16.1"}


def test_the_table_replaces_what_stands_between_the_marks_and_nothing_else(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}an older table\n{END}after\n")
    rows = [
        Row("Kafka 3.9.2", FACTS, 4, 12345, {}, "2026-01-02", "abc"),
        Row("Redis 8", FACTS, 4, 10, {"lost": 2}, "2026-01-02", "abc"),
        Row("Valkey 8", why="no apt-get"),
    ]

    write_table(page, rows)

    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}| | Kafka |")
    assert text.endswith(f"{END}after\n")
    assert "an older table" not in text
    assert "| Kafka 3.9.2 | 3.9.2 | 7.0.15 | 3.11.7 | 2.16.1 | 4 | 12,345 | none |" in text
    assert "| 10 | lost 2 |" in text
    assert "| Valkey 8 | not run: no apt-get |" in text


def test_a_page_without_marks_is_not_written(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("no marks\n")
    with pytest.raises(SystemExit, match="no marks"):
        write_table(page, [])
    assert page.read_text() == "no marks\n"


def test_the_page_of_versions_has_the_marks():
    assert BEGIN in PAGE.read_text()
    assert END in PAGE.read_text()
