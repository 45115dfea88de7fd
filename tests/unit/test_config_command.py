import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hapax.commands.config import app
from hapax.core.errors import ConfigurationError
from hapax.kafka.properties import nearest_property, property_names
from hapax.settings import VARIABLES
from hapax.settings.env_file import assignment, read_env_file
from tests.kit.commands import invoked, run_captured
from tests.kit.managed_process import clean_environment
from tests.unit.test_settings import REQUIRED

RUN = CliRunner()
PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_fine_settings_are_said_to_be_fine_to_people_and_to_programs_in_json():
    result = RUN.invoke(app, ["check"], env=REQUIRED)
    assert (result.exit_code, result.stdout) == (0, "settings are fine\n")
    fine = RUN.invoke(app, ["check", "--json"], env=REQUIRED)
    assert json.loads(fine.stdout) == {"ok": True, "problems": []}
    wrong = invoked(app, ["check", "--json"], env=REQUIRED | {"HAPAX_APP": "a b"}, code=2)
    answer = json.loads(wrong.stdout)
    assert answer["ok"] is False
    assert len(answer["problems"]) == 1


@pytest.mark.parametrize("command", ["check", "show"])
def test_problems_are_listed_on_standard_error_and_the_exit_code_is_2(command):
    result = invoked(app, [command], env=REQUIRED | {"HAPAX_APP": "a b", "HAPAX_AP": "c"}, code=2)
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
    (told,) = invoked(app, ["check"], env=REQUIRED | LONG | more, code=2).stderr.splitlines()
    assert told.startswith(
        "HAPAX_CALL__TIMEOUT=10m must be shorter than HAPAX_GROUP__MAX_POLL_INTERVAL=5m: while"
        " a plain function is called, one at a time, nothing attends to the group"
    )


def test_show_prints_every_value_and_where_it_is_from():
    environ = REQUIRED | {"HAPAX_DEDUP__REDIS_URL": "redis://:hunter2@cache:6379/0"}
    result = invoked(app, ["show"], env=environ)
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["HAPAX_APP", "orders", "environment"] in lines
    assert ["HAPAX_DEDUP__TTL", "24h", "default"] in lines
    assert ["HAPAX_DEDUP__REDIS_URL", "redis://:***@cache:6379/0", "environment"] in lines
    assert "hunter2" not in result.output
    shown = json.loads(RUN.invoke(app, ["show", "--json"], env=REQUIRED).stdout)
    assert shown["HAPAX_OUTPUT__TOPIC"] == {"value": "out", "from": "environment"}
    assert shown.keys() == {variable.name for variable in VARIABLES}


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


TRANSFORM = (
    "from hapax import Output\n\n\ndef transform(record):\n    return Output(record.value)\n"
)

AROUND = {"HOME": "/root", "EMPTY": ""}


def read(folder: Path, text: str) -> dict[str, str]:
    file = folder / "settings.env"
    file.write_bytes(text.encode())
    return read_env_file(file, AROUND)


# What compose-go v2.16.2 returns for each of these: the lines that Docker Compose reads.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=orders", "orders"),
        ("export A=orders", "orders"),
        ("  A = orders  ", "orders"),
        ("A=", ""),
        ("A=''", ""),
        ("A=a#b", "a#b"),
        ("A=#b", "#b"),
        ("A=a # a comment", "a"),
        ("A=a  # a's \t# $comment", "a"),
        ("A='a' # a comment", "a"),
        ("A=a=b", "a=b"),
        ("A=json:/id,key", "json:/id,key"),
        ('A={"linger.ms": 5}', '{"linger.ms": 5}'),
        ('A="a b"', "a b"),
        ("A='a \"b\"'", 'a "b"'),
        (r'A="a\tb\n"', "a\tb\n"),
        (r'A="a \"b\""', 'a "b"'),
        (r"A='it\'s'", "it's"),
        (r"A='a\tb'", r"a\tb"),
        (r"A=a\tb", r"a\tb"),
        ('A="one\ntwo"', "one\ntwo"),
        ("A='one\r\ntwo'", "one\r\ntwo"),
        ("A=one\r\n", "one"),
        ("\ufeffA=one", "one"),
        ("B=b\nA=$B", "b"),
        ("B=b\nA=${B}c", "bc"),
        ('B=b\nA="${B} c"', "b c"),
        ("B=b\nA='${B} $B'", "${B} $B"),
        ("HOME=/here\nA=$HOME", "/root"),
        ("A=$NONE-$", "-$"),
        ("A=$$B", "$B"),
        (r'A="\$B"', "$B"),
        ("A=${NONE:-b}", "b"),
        ("A=${EMPTY:-b}", "b"),
        ("A=${EMPTY-b}", ""),
        ("A=${HOME:-b}", "/root"),
        ("A=${HOME:+b}", "b"),
        ("A=${EMPTY:+b}", ""),
        ("A=${EMPTY+b}", "b"),
        ("A=${HOME:?b}", "/root"),
        ("A=one\nA=two", "two"),
    ],
)
def test_a_file_is_read_as_docker_compose_reads_it(tmp_path, text, value):
    assert read(tmp_path, text + "\n")["A"] == value


NO_LINE = "write NAME=VALUE"
NO_NAME = "write ${NAME} or ${NAME:-default}, and $$ for a dollar sign"
ESCAPED = "write it without this escape"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, NO_LINE) for text in ("hunter 2", "hunter2 # a", "2X=1", "'A'=1", "A: hunter2")),
        *((text, NO_LINE) for text in ('A="hunter2', "A='a' hunter2")),
        *((text, NO_NAME) for text in ("A=${B:-${C}}", "A=${hunter 2}")),
        ("A=${NONE:?b}", "NONE is not set, and this line requires it"),
        ("A=${EMPTY:?b}", "EMPTY is not set, and this line requires it"),
        ("A= # hunter2", "put the comment on a line of its own"),
        ("A=a\t# hunter2", "put the comment on a line of its own"),
        *((text, ESCAPED) for text in (r"A='hunter\\2'", r'A="hunter\'2"', r'A="hunter\0412"')),
        (r'A="hunter\\$HOME"', ESCAPED),
    ],
)
def test_what_compose_refuses_or_reads_otherwise_is_named_and_never_shown(tmp_path, text, said):
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, f"B=1\n\n{text}\n")
    [problem] = caught.value.problems
    assert problem.startswith(f"{tmp_path}/settings.env, line 3: ")
    assert problem.endswith(said)
    assert "hunter" not in problem


def test_every_line_that_is_none_is_named_and_comments_and_names_alone_set_nothing(tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, "HAPAX_APP=orders\nhunter 2\n\n2X=1\n")
    assert [each.partition("settings.env, ")[2] for each in caught.value.problems] == [
        f"line {number}: write NAME=VALUE" for number in (2, 4)
    ]
    assert read(tmp_path, "# all of them\n\n  # more\nHAPAX_APP\n") == {}


@pytest.mark.parametrize(
    ("content", "why"), [(None, "No such file"), (b"A=\xff", "it is not UTF-8")]
)
def test_a_file_that_cannot_be_read_is_a_problem_in_one_sentence(tmp_path, content, why):
    file = tmp_path / "none.env"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"cannot be read: {why}"):
        read_env_file(file, {})


@pytest.mark.parametrize("text", ["HAPAX_APP", "=orders", "HAPAX APP=orders", ""])
def test_what_is_no_assignment_is_refused(text):
    with pytest.raises(ConfigurationError, match="NAME=VALUE"):
        assignment(text)


def hapax(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command as its script does: with the script's folder on the path, and no other."""
    code = "import sys; sys.path.pop(0); from hapax.__main__ import main; main()"
    command = [sys.executable, "-c", code, *words]
    return run_captured(command, cwd=folder, env=clean_environment() | environ, timeout=60)


def test_flags_and_set_count_more_than_the_environment_and_that_more_than_a_file(tmp_path):
    lines = {**REQUIRED, "HAPAX_APP": "file", "HAPAX_INSTANCE": "file-0"}
    lines["HAPAX_DEDUP__TTL"] = "2h"
    text = "".join(f"{name}={value}\n" for name, value in lines.items())
    (tmp_path / "settings.env").write_text(text)
    before = "--env-file settings.env --set HAPAX_APP=typed --set HAPAX_CALL__CONCURRENCY=2"
    flags = "a:b --input a,b --output c --brokers d:1 --dead-letter= --app typed --engine worker"
    words = f"{before} config show {flags} --json"
    around = dict.fromkeys(("HAPAX_APP", "HAPAX_INPUT__TOPICS", "HAPAX_DEAD_LETTER__TOPIC"), "e")
    done = hapax(tmp_path, *words.split(), HAPAX_INSTANCE="environment-0", **around)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert {name: tuple(shown[f"HAPAX_{name}"].values()) for name in SHOWN} == SHOWN


SHOWN = {
    "APP": ("typed", "--app"),
    "INSTANCE": ("environment-0", "environment"),
    "DEDUP__TTL": ("2h", "settings.env"),
    "CALL__CONCURRENCY": ("2", "--set"),
    "TRANSFORM": ("a:b", "TARGET"),
    "INPUT__TOPICS": ("a,b", "--input"),
    "OUTPUT__TOPIC": ("c", "--output"),
    "KAFKA__BOOTSTRAP_SERVERS": ("d:1", "--brokers"),
    "DEAD_LETTER__TOPIC": ("unset", "default"),  # --dead-letter= is empty, and overrides
    "ENGINE": ("worker", "--engine"),
}


def test_a_flag_and_a_set_of_one_name_that_differ_are_refused_with_both_and_errors_name_flags(
    tmp_path,
):
    differ = "hapax: --app a and --set HAPAX_APP=b differ: give one of them\n"
    for words in (
        "run --app a --set HAPAX_APP=b",
        "--set HAPAX_APP=b run --app a",
        "--set HAPAX_APP=b config check --app a",
    ):
        done = hapax(tmp_path, *words.split())
        assert (done.returncode, done.stderr) == (2, differ), words
    for words in ("run x --input a,,b", "config check x --input a,,b"):
        done = hapax(tmp_path, *words.split(), **REQUIRED)
        assert done.returncode == 2
        assert 'HAPAX_TRANSFORM="x" (from TARGET): ' in done.stderr
        assert 'HAPAX_INPUT__TOPICS="a,,b" (from --input): ' in done.stderr


def test_a_mistake_before_the_command_ends_with_2_and_a_sentence(tmp_path):
    for words in (("--set", "HAPAX_APP"), ("--env-file", "none.env")):
        for placed in ((*words, "config", "check"), ("run", *words), (*words, "trace", "a")):
            done = hapax(tmp_path, *placed)
            assert done.returncode == 2, placed
            assert done.stderr.startswith("hapax: "), done.stderr
            assert len(done.stderr.splitlines()) == 1, done.stderr


def test_run_takes_files_and_assignments_and_refuses_what_is_wrong_in_them(tmp_path):
    (tmp_path / "settings.env").write_text("HAPAX_APP=a b\n")
    done = hapax(tmp_path, "run", "--env-file", "settings.env", "--set", "HAPAX_NONE=1")
    assert done.returncode == 2
    assert 'hapax: HAPAX_APP="a b" (from settings.env): ' in done.stderr
    assert "HAPAX_NONE is read by nothing" in done.stderr


def test_the_check_imports_the_transform_from_the_working_folder(tmp_path):
    words = ("--set", "HAPAX_TRANSFORM=rule:transform", "config", "check")
    absent = hapax(tmp_path, *words, **REQUIRED)
    assert absent.returncode == 2
    assert "cannot import rule: ModuleNotFoundError" in absent.stderr
    (tmp_path / "rule.py").write_text(TRANSFORM)
    done = hapax(tmp_path, *words, **REQUIRED)
    assert (done.returncode, done.stdout) == (0, "settings are fine\n"), done.stderr


def test_the_check_knows_the_properties_of_the_client_and_names_all_faults(tmp_path):
    properties = 'HAPAX_KAFKA__PROPERTIES={"fetch.max.bites": 1}'
    words = ("--set", properties, "--set", "HAPAX_TRANSFORM=none:transform", "config", "check")
    done = hapax(tmp_path, *words, **REQUIRED)
    assert done.returncode == 2
    assert "cannot import none" in done.stderr
    assert 'property: "fetch.max.bites": did you mean fetch.max.bytes?' in done.stderr


def test_the_names_of_properties_are_those_that_the_client_takes():
    names = set(property_names())
    assert len(names) > 150
    assert names >= {"linger.ms", "sasl.username", "queued.max.messages.kbytes", "acks"}
    assert nearest_property('No such configuration property: "nothing.like.it"') == ""
    assert nearest_property('Invalid value for configuration property "linger.ms"') == ""
