"""The tables of docs/world say what was run, and nothing else."""

import pytest

from tests.world import programs, rounds, tables

PAGES = sorted(tables.PAGES.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_table_of_the_world_is_as_it_was_recorded(page):
    assert page.read_text(encoding="utf-8") == tables.filled(page)


def test_each_table_of_the_world_stands_on_a_page():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in tables.TABLES if f"<!-- table: {name} -->" not in text] == []


def test_each_client_has_a_program_and_was_played_or_is_named_as_missing():
    record = rounds.record()
    every = programs.clients()
    assert [c.name for c in every if c.name not in record["rows"] | record["missing"]] == []
    programs_there = {path.stem for path in (programs.FOLDER / "clients").iterdir()}
    assert programs_there == {client.words.get("program", client.name) for client in every}


def test_the_record_is_of_the_versions_that_are_asked_for():
    recorded = rounds.record()["versions"]
    assert {c.name: c.version for c in programs.clients()}.items() <= recorded.items()
