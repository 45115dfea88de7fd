"""Further properties of Spark, and why some of them are refused."""

from __future__ import annotations

import json
import re
from typing import Final

from hapax.settings.redaction import hidden, hidden_values, secrets_in_json
from hapax.settings.value_types import Form

_NAME: Final = re.compile(r"spark\.[A-Za-z0-9._-]+")
_HINT: Final = 'write a JSON object like {"spark.executor.memory": "4g"}'

_REFUSED: Final[dict[str, str]] = {
    "spark.app.name": "use HAPAX_APP",
    "spark.master": "use HAPAX_SPARK__MASTER",
    "spark.submit.deployMode": "the driver is this very process",
    "spark.speculation": "a second attempt of a task would only fence the first",
    "spark.python.use.daemon": "a process for each task would import everything each time",
    "spark.sql.streaming.checkpointLocation": "use HAPAX_SPARK__CHECKPOINT",
    "spark.sql.streaming.stopActiveRunOnRestart": "it distinguishes two runs of one query",
}


def _parse(text: str) -> dict[str, str]:
    try:
        properties = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        raise ValueError(_HINT) from None
    if not isinstance(properties, dict):
        # TRY004 asks for a TypeError, but to the reader of the message it is a wrong value.
        raise ValueError(_HINT)  # noqa: TRY004
    problems = [problem for name in properties if (problem := _problem(name, properties[name]))]
    if problems:
        raise ValueError(*problems)
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in properties.items()
    }


def _problem(name: str, value: object) -> str | None:
    if not _NAME.fullmatch(name):
        return f"{json.dumps(hidden(name))} is not the name of a Spark property"
    if name in _REFUSED:
        return f"{name} is refused: {_REFUSED[name]}"
    if not isinstance(value, str | bool) or not str(value).isprintable():
        return f"{name} must be a text on one line, a number, true or false"
    return None


def _show(properties: dict[str, str]) -> str:
    return json.dumps(hidden_values(properties), sort_keys=True)


# Not quotable: a secret in the wrong place is still a secret.
SPARK_PROPERTIES: Final = Form(
    "JSON object of Spark properties and plain values",
    _parse,
    show=_show,
    quotable=False,
    filed=True,
    parts=secrets_in_json,
)
