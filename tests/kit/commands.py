"""Commands as a person types them: what they print, and how they end."""

import subprocess
from collections.abc import Sequence
from typing import Any

import typer
from typer.testing import CliRunner, Result

from hapax.sandbox.broker import java


def run_captured(
    command: Sequence[Any], *, timeout: float = 300.0, **how: Any
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, whatever its exit code; ``how``: as of subprocess.run."""
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout, **how
    )


def output_of(command: Sequence[Any], **how: Any) -> str:
    """Run it likewise; it must end well. Return what it printed on stdout."""
    done = run_captured(command, **how)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def kafka_configs(bootstrap: str, *words: str) -> None:
    """Alter what kafka-configs can, with the tool of 4.3: no jar of a 4.4 broker has it."""
    tool = java("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, kafka="4.3")
    output_of([*tool, "--alter", *words], timeout=60)


def invoked(app: typer.Typer, words: Sequence[str], *, code: int = 0, **how: Any) -> Result:
    """Run it in this process; it must leave with this exit code."""
    done = CliRunner().invoke(app, words, **how)
    assert done.exit_code == code, done.output
    return done
