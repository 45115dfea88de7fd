"""Bad input and a world that is away: one sentence and an exit code, from every command."""

import json
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

import hapax
from hapax.commands.tree import app
from tests.kit.commands import invoked, run_captured
from tests.unit.test_settings import REQUIRED

RUN = CliRunner()
REDIS = {"HAPAX_DEDUP__REDIS_URL": "redis://127.0.0.1:1/0"}
DEAD = {"HAPAX_DEAD_LETTER__TOPIC": "dead"}
ENVIRONMENT = {**REQUIRED, "HAPAX_INPUT__TOPICS": "orders"}
COMMANDS: dict[str, dict[str, str]] = {
    "offsets": {},
    "backfill": {},
    "dead-letters list": DEAD,
    "dead-letters show dead/0/1": DEAD,
    "dead-letters replay --yes": DEAD,
    "transactions list": {},
    "lag billing": {},
    "lag billing --topic orders": {},
    "trace orders/0/1": {},
    "trace e-1": {},
    "publish": {},
    "publish --transactional": {},
    "claims rebuild --yes": REDIS,
    "claims adopt --yes": REDIS,
}
WRONG = {
    "audit --since yesterday": "--since yesterday: write an age like 24h",
    "audit --since 5": "write an age like 24h",
    "audit --since ''": "write an age like 24h",
    "audit --master local[2]": "--master is an option of --engine spark",
    "backfill --from soon": "choose one of earliest, latest, refuse, or write an age",
    "backfill --until soon": "choose one of latest, or write an age",
    "backfill --from latest": "leaves nothing before HAPAX_INPUT__END=latest",
    "backfill --master spark://here:7077": "--master is an option of --engine spark",
    "offsets --interval 2": "--interval 2: the unit is missing",
    "offsets --watch --interval 0s": "--interval 0s: at least 200ms",
    "offsets set": "Missing argument",
    "offsets set orders": "name the offset once",
    "offsets set orders/0/1 latest": "name the offset once",
    "offsets set orders 7": "an offset belongs to one partition",
    "offsets set orders/-1/7": "write TOPIC, TOPIC/PARTITION",
    "offsets set orders/0 soon": "TO soon: write an age",
    "offsets set orders/0/1 --yes --dry-run": "exclude each other",
    "offsets rewind": "name one of --by, --to and --to-offset",
    "offsets rewind --by 1 --to 1h": "name one of --by, --to and --to-offset",
    "offsets rewind --to-offset 7": "name the partition",
    "offsets rewind orders/0/7 --by 1": "name the offset by --to-offset",
    "offsets skip orders/0": "write TOPIC/PARTITION/OFFSET",
    "offsets skip orders/0/7 --dead-letter": "HAPAX_DEAD_LETTER__TOPIC is not set",
    "dead-letters list --since soon": "--since soon: write an age",
    "dead-letters list --since 1h --until 2h": "--since 1h is not before --until 2h",
    "dead-letters show ''": "an event's id is at least one byte",
    "claims show ''": "an event's id is at least one byte",
    "claims forget ''": "an event's id is at least one byte",
    "trace ''": "name one id",
    "trace e-1 --id e-2": "name one id",
    "trace nosuch/0/0": "nosuch is no topic of this pipeline",
    "trace orders/0/-1": "partition and offset are numbers from 0 on",
    "dead-letters list --source a/b/c/d": "--source a/b/c/d: write topic",
    "dead-letters list": "HAPAX_DEAD_LETTER__TOPIC is not set",
    "dead-letters replay --yes": "HAPAX_DEAD_LETTER__TOPIC is not set",
    "claims show e-1": "HAPAX_DEDUP__REDIS_URL is not set",
    "claims forget e-1 --yes": "HAPAX_DEDUP__REDIS_URL is not set",
    "claims rebuild --yes": "HAPAX_DEDUP__REDIS_URL is not set",
    "claims rebuild --since soon --yes": "--since soon",
    "trace e-1 --since soon": "--since soon",
    "publish --header a": "--header a: write NAME=VALUE",
    "publish --header \udcff=1": "write NAME=VALUE",
    "publish --topic a!": "no topic can have this name",
    "publish --id-pointer id": "a JSON pointer begins with a slash",
    "publish --id a --id-from-content": "exclude each other",
    "publish --key a --key-pointer /a": "exclude each other",
    "publish --skip-bad-lines": "--skip-bad-lines needs --spool DIR",
    "publish --resume-at 1": "--resume-at needs --spool DIR",
    "publish --spool s --transactional": "exclude each other",
    "publish --spool s --disk-max much": "--disk-max much",
    "publish --spool s --disk-max 1": "--disk-max 1: a spool takes 256KiB at least",
    "publish nowhere.log --spool s": "nowhere.log cannot be read: No such file",
    "publish nowhere.jsonl": "nowhere.jsonl cannot be read: No such file",
    "transactions abort other-0 --yes": "no transactional id of",
    "transactions abort": "name a transactional id, or --partition",
    "transactions abort --producer-id 7": "name a transactional id, or --partition",
    "transactions abort a --partition orders/0 --producer-id 7": "name a transactional id",
    "transactions abort --partition orders --producer-id 7": "write TOPIC/PARTITION",
}


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_where_nothing_listens_a_command_exits_with_3_and_one_sentence_within_two_seconds(command):
    began_s = time.monotonic()
    env = {**ENVIRONMENT, **COMMANDS[command], "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    done = RUN.invoke(app, command.split(), env=env, input="{}\n")
    assert time.monotonic() - began_s < 2
    assert done.exit_code == 3, done.output
    (told,) = done.stderr.splitlines()
    assert "no broker answered at HAPAX_KAFKA__BOOTSTRAP_SERVERS=127.0.0.1:1" in told
    assert "connection refused" in told


def test_programs_get_the_sentence_as_json_and_an_id_like_a_place_is_given_by_name():
    env = {**ENVIRONMENT, "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    told = json.loads(invoked(app, ["offsets", "--json"], env=env, code=3).stdout)
    assert told["ok"] is False
    assert len(told["problems"]) == 1
    told = json.loads(invoked(app, ["audit", "--json", "--al"], code=2).stdout)
    assert told["problems"][0].startswith("hapax audit: No such option: --al")
    done = invoked(app, ["trace", "--id", "2030/01/31"], env=env, code=3)
    assert "no broker answered" in done.stderr


@pytest.mark.parametrize("command", WRONG)
def test_what_cannot_be_meant_is_one_sentence_and_exit_code_2(command):
    words = ["" if word == "''" else word for word in command.split()]
    done = invoked(app, words, env=ENVIRONMENT, input="{}\n", code=2)
    assert done.stdout == ""
    (told,) = done.stderr.splitlines()
    assert WRONG[command] in told


def test_a_folder_without_settings_is_named_before_each_variable_that_is_missing():
    told = invoked(app, ["dev", "--once"], env={}, input="{}\n", code=2).stderr.splitlines()
    assert told[0].startswith("hapax dev: there is no settings.env here: name a file")
    assert "HAPAX_APP is not set" in told[1]


@pytest.mark.parametrize("command", ["audit", "offsets", "offsets rewind --by 1", "trace e-1"])
def test_what_judges_a_group_refuses_a_pipeline_whose_positions_are_in_a_checkpoint(command):
    rows = {
        "HAPAX_ENGINE": "spark",
        "HAPAX_SPARK__DATAFRAME": "m:f",
        "HAPAX_SPARK__CHECKPOINT": "c",
    }
    env = {
        **ENVIRONMENT,
        **rows,
        "HAPAX_TRANSFORM": "",
        "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
    }
    done = RUN.invoke(app, command.split(), env=env)
    assert "positions of a DataFrame are in its checkpoint" in done.stderr
    assert done.exit_code == 2


@pytest.mark.parametrize(
    "arguments", ["topic=a b", "topic=..", "topic=a:0", "topic=a:99999999999", "nodes=2", "rules=x"]
)
def test_a_sandbox_that_cannot_be_meant_is_refused_before_anything_starts(arguments):
    (told,) = invoked(app, ["sandbox", "up", f"--{arguments}"], code=2).stderr.splitlines()
    assert told.startswith("hapax sandbox up: Invalid value for ")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("help offset", "hapax: No such command 'offset'. Did you mean 'offsets'? hapax --help"),
        ("offset", "hapax: No such command 'offset'"),
        ("doctor --al", "hapax doctor: No such option: --al"),
        ("run --set", "hapax: Option '--set' requires an argument"),
        ("sandbox up --port x\x1b", "hapax sandbox up: Invalid value for '--port'"),
    ],
)
def test_what_does_not_exist_is_one_sentence_that_names_the_help(command, said):
    done = RUN.invoke(app, command.split())
    assert (done.exit_code, done.stdout) == (2, "")
    (told,) = done.stderr.splitlines()
    assert told.isprintable()
    assert told.startswith(said)
    assert told.endswith(f"{said.partition(':')[0]} --help says what it takes.")


@pytest.mark.parametrize(
    ("typed", "command", "option"),
    [
        ("doctor --env-file a.env", "doctor", "--env-file FILE"),
        ("offsets --env-file=a", "offsets", "--env-file FILE"),
        ("config check --set A=1", "config check", "--set NAME=VALUE"),
        ("trace e-1 --set A=1", "trace", "--set NAME=VALUE"),
    ],
)
def test_settings_after_another_command_are_refused_with_the_right_order(typed, command, option):
    done = RUN.invoke(app, typed.split())
    assert (done.exit_code, done.stdout) == (2, "")
    name = option.split()[0]
    right = f"hapax {command}: {name} belongs before the command: hapax {option} {command}\n"
    assert done.stderr == right


def test_a_name_alone_shows_the_help_and_no_error():
    done = RUN.invoke(app, ["claims"])
    assert (done.exit_code, done.stderr) == (2, "")
    assert "rebuild" in done.stdout


@pytest.mark.parametrize("command", ["claims show e-1", "claims forget e-1 --yes"])
def test_a_claim_store_that_is_away_is_one_sentence_and_exit_code_1(command):
    assert invoked(
        app, command.split(), env={**ENVIRONMENT, **REDIS}, code=1
    ).stderr.splitlines() == ["Redis at 127.0.0.1:1/0 does not answer: connection refused"]


@pytest.mark.parametrize("command", ["claims rebuild", "dead-letters replay"])
def test_what_changes_things_asks_and_without_a_terminal_wants_a_flag(command):
    from hapax.commands.screen import confirm  # noqa: PLC0415 - beside what it stands for
    from hapax.core.errors import ConfigurationError  # noqa: PLC0415 - as above

    with pytest.raises(ConfigurationError, match="add --yes"):
        confirm(f"Do {command}?", yes=False)
    confirm(f"Do {command}?", yes=True)
    assert "--yes" in RUN.invoke(app, [*command.split(), "--help"]).stdout


STAND_IN = """
import atexit, os, signal, sys, types
stand_in = types.ModuleType("hapax.commands.run")
def run():
    {does}
stand_in.run = run
sys.modules["hapax.commands.run"] = stand_in
sys.argv = ["hapax", "run"]
import hapax.__main__
hapax.__main__.main()
"""


def left(does: str) -> subprocess.CompletedProcess[str]:
    code = STAND_IN.format(does=does)
    return run_captured([sys.executable, "-c", code], timeout=60)


def test_sigterm_while_the_service_is_loaded_leaves_with_0_and_a_crash_with_1_and_says_where():
    assert left("return os.kill(os.getpid(), signal.SIGTERM) or 9").returncode == 0
    end = left("atexit.register(os.abort); raise LookupError('nothing there')")
    assert end.returncode == 1
    assert "LookupError: nothing there" in end.stderr
    assert "in run" in end.stderr


def test_the_interpreter_is_not_taken_apart_under_threads_that_the_client_left_behind():
    """What they do meanwhile is undefined; here it ends the process with SIGABRT."""
    end = left("atexit.register(os.abort); print('the last line'); return 5")
    assert (end.returncode, end.stdout) == (5, "the last line\n")


def test_other_commands_leave_in_the_same_way():
    code = (
        "import atexit, os, sys; atexit.register(os.abort);"
        " sys.argv = ['hapax', {!r}]; import hapax.__main__; hapax.__main__.main()"
    )
    ends = [
        subprocess.run([sys.executable, "-c", code.format(word)], check=False, capture_output=True)
        for word in ("--help", "no-such-command")
    ]
    assert [end.returncode for end in ends] == [0, 2]
    assert b"exactly-once" in ends[0].stdout.lower()


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_printed_with_the_name(option):
    end = run_captured([sys.executable, "-m", "hapax", option], timeout=60)
    assert (end.returncode, end.stdout, end.stderr) == (0, f"hapax {hapax.__version__}\n", "")


@pytest.mark.parametrize("command", ["", "run", "offsets rewind"])
def test_help_with_the_name_of_a_command_is_what_the_command_prints_with_the_option(command):
    shown = invoked(app, ["help", *command.split()]).stdout
    assert shown == invoked(app, [*command.split(), "--help"]).stdout
    assert f"Usage: hapax {command}" in shown
