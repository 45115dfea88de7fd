"""The commands of a night on call, run in this process on the environment of a route."""

import json
from typing import Any

from typer.testing import CliRunner, Result

from hapax.commands.tree import app
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.topics import ends
from tests.kit.waiting import await_


def ran(route: PipelineUnderTest, **settings: str | None) -> None:
    """Let one worker do all there is, and wait until brokers have written down what it did.

    A commit returns before its markers stand in every partition; so did the one before the run.
    """
    settle(route)
    route.run_to_end(**settings)
    settle(route)
    route.await_lag_0()


def settle(route: PipelineUnderTest) -> None:
    topics = (route.source, route.target, route.dead_letters)

    def decided() -> bool:
        return all(
            ends(route.bootstrap, topic) == ends(route.bootstrap, topic, "read_uncommitted")
            for topic in topics
        )

    await_(decided, 60, lambda: "a transaction stays open")


class Desk:
    """Where somebody on call types."""

    def __init__(self, route: PipelineUnderTest, **settings: str | None) -> None:
        self.environment = route.environment(**settings) | {"HAPAX_INSTANCE": "desk"}

    def type(self, *words: str, given: str = "") -> Result:
        return CliRunner().invoke(app, list(words), env=self.environment, input=given)

    def ask(self, *words: str, given: str = "") -> Any:
        """Run a command that must go well; return its JSON."""
        done = self.type(*words, "--json", given=given)
        assert done.exit_code == 0, done.output
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return json.loads(done.stdout)
