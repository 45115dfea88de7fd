import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hapax.commands.config import app
from hapax.settings import VARIABLES
from tests.unit.test_settings import REQUIRED

RUN = CliRunner()
PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


@pytest.fixture(autouse=True)
def environ(monkeypatch):
    for name in os.environ:
        if name.upper().startswith("HAPAX_"):
            monkeypatch.delenv(name)


def test_fine_settings_are_said_to_be_fine():
    result = RUN.invoke(app, ["check"], env=REQUIRED)
    assert (result.exit_code, result.stdout) == (0, "settings are fine\n")


@pytest.mark.parametrize("command", ["check", "show"])
def test_problems_are_listed_on_standard_error_and_the_exit_code_is_2(command):
    result = RUN.invoke(app, [command], env=REQUIRED | {"HAPAX_APP": "a b", "HAPAX_AP": "c"})
    assert result.exit_code == 2
    assert result.stdout == ""
    assert [line.split("=")[0].split()[0] for line in result.stderr.splitlines()] == [
        "HAPAX_AP",
        "HAPAX_APP",
    ]


LONG = {"HAPAX_CALL__TIMEOUT": "10m"}


@pytest.mark.parametrize(
    "more",
    [
        {"HAPAX_TRANSFORM": "tests.kit.calls:coroutine"},
        {"HAPAX_TRANSFORM": "tests.kit.calls:batch"},
        {"HAPAX_TRANSFORM": "tests.kit.calls:function", "HAPAX_CALL__CONCURRENCY": "2"},
    ],
)
def test_calls_beside_which_the_group_is_attended_to_may_take_longer_than_the_poll_interval(more):
    result = RUN.invoke(app, ["check"], env=REQUIRED | LONG | more)
    assert (result.exit_code, result.stdout) == (0, "settings are fine\n"), result.stderr


@pytest.mark.parametrize("more", [{}, {"HAPAX_TRANSFORM": "tests.kit.calls:function"}])
def test_plain_functions_one_at_a_time_may_not_take_as_long_as_the_poll_interval(more):
    result = RUN.invoke(app, ["check"], env=REQUIRED | LONG | more)
    assert result.exit_code == 2
    (told,) = result.stderr.splitlines()
    assert told.startswith(
        "HAPAX_CALL__TIMEOUT=10m must be shorter than HAPAX_GROUP__MAX_POLL_INTERVAL=5m: while"
        " a plain function is called, one at a time, nothing attends to the group"
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("of_two", "a transform takes one record, or one list[Record]"),
        ("of_none", "a transform takes one record, or one list[Record]"),
        ("generator", "return a list of Outputs instead"),
    ],
)
def test_a_transform_of_another_shape_is_named_with_what_is_wrong(name, why):
    named = {"HAPAX_TRANSFORM": f"tests.kit.calls:{name}"}
    result = RUN.invoke(app, ["check"], env=REQUIRED | named)
    assert result.exit_code == 2
    assert f'HAPAX_TRANSFORM="tests.kit.calls:{name}": {name} ' in result.stderr
    assert why in result.stderr


def test_a_check_answers_programs_in_json():
    fine = RUN.invoke(app, ["check", "--json"], env=REQUIRED)
    assert json.loads(fine.stdout) == {"ok": True, "problems": []}
    wrong = RUN.invoke(app, ["check", "--json"], env=REQUIRED | {"HAPAX_APP": "a b"})
    assert wrong.exit_code == 2
    answer = json.loads(wrong.stdout)
    assert answer["ok"] is False
    assert len(answer["problems"]) == 1


def test_show_prints_every_value_and_where_it_is_from():
    environ = REQUIRED | {"HAPAX_DEDUP__REDIS_URL": "redis://:hunter2@cache:6379/0"}
    result = RUN.invoke(app, ["show"], env=environ)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["HAPAX_APP", "orders", "environment"] in lines
    assert ["HAPAX_DEDUP__TTL", "24h", "default"] in lines
    assert ["HAPAX_DEDUP__REDIS_URL", "redis://:***@cache:6379/0", "environment"] in lines
    assert "hunter2" not in result.output


def test_show_answers_programs_in_json():
    result = RUN.invoke(app, ["show", "--json"], env=REQUIRED)
    shown = json.loads(result.stdout)
    assert shown["HAPAX_OUTPUT__TOPIC"] == {"value": "out", "from": "environment"}
    assert shown.keys() == {variable.name for variable in VARIABLES}


def test_brackets_in_a_value_are_no_markup():
    result = RUN.invoke(app, ["show"], env=REQUIRED | {"HAPAX_TELEMETRY__ADDRESS": "[red]::1"})
    assert "[red]::1" in result.stdout


def test_the_reference_needs_no_settings_and_lists_every_variable():
    table = RUN.invoke(app, ["reference"], env={})
    answer = RUN.invoke(app, ["reference", "--format", "json"], env={})
    rows = json.loads(answer.stdout)
    assert [row["variable"] for row in rows] == [variable.name for variable in VARIABLES]
    assert all({"variable", "meaning", "default", "allowed"} <= row.keys() for row in rows)
    assert all(row["variable"] in table.stdout for row in rows)
    assert "`" not in table.stdout


def test_the_page_of_the_docs_is_what_the_command_prints():
    result = RUN.invoke(app, ["reference", "--format", "markdown"], env={})
    assert result.stdout == PAGE.read_text(encoding="utf-8"), "run: make generate"


def test_no_cell_breaks_the_tables_of_the_page():
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    assert len(rows) > len(VARIABLES)
    assert {line.count("|") for line in rows} == {5}
