"""The table of all variables, from the code: for people, for the docs and for programs."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from hapax.settings.model import VARIABLES

if TYPE_CHECKING:
    from hapax.settings.base import Variable

_INTRODUCTION: Final = """\
# Settings

<!-- Written by `hapax config reference --format markdown`; a test compares. -->

The service reads its environment and nothing else.
`hapax config check` names every mistake at once, `hapax config show` prints what is in force and \
where it is from.

- Durations carry their unit: `250ms`, `1.5s`, `5m`, `24h`, `7d`.
- Sizes are `16MiB` (2^20), `1MB` (10^6) or a plain number of bytes.
- An empty variable is an unset one.
- Whatever may hold a secret can also be read from a file, which the variable with `_FILE` names; \
line breaks at the end are dropped. Only one of the two may be set.
- A variable that begins with `HAPAX_` and that nothing reads is an error, except those that \
Kubernetes sets for a service of that name.
"""
_AS_KAFKA_SECURITY: Final = ("output", "kafka", "security")
_OUTPUT_SECURITY: Final = """
## Output kafka security

`HAPAX_OUTPUT__KAFKA__SECURITY__…`: the variables of [Kafka security](#kafka-security), with the \
same defaults, for the cluster of the outputs.
"""


def rows() -> list[dict[str, str]]:
    """Return one row per variable: variable, meaning, default, allowed, and file for secrets."""
    return [_row(variable) for variable in VARIABLES]


def markdown() -> str:
    parts = [_INTRODUCTION]
    for group, members in groupby(VARIABLES, key=lambda variable: variable.path[:-1]):
        title = " ".join(group).replace("_", " ").capitalize() or "Pipeline"
        if group == _AS_KAFKA_SECURITY:
            parts.append(_OUTPUT_SECURITY)
            continue
        parts.append(
            f"\n## {title}\n\n| variable | meaning | default | allowed |\n|---|---|---|---|\n"
        )
        parts.extend(_line(_row(variable)) for variable in members)
    return "".join(parts)


def _row(variable: Variable) -> dict[str, str]:
    row = {
        "variable": variable.name,
        "meaning": variable.meaning,
        "default": "required" if variable.default is None else variable.default,
        "allowed": variable.form.allowed,
    }
    if variable.file_name is not None:
        row["file"] = variable.file_name
    return row


def _line(row: dict[str, str]) -> str:
    default = row["default"]
    if default not in {"required", "unset"} and "`" not in default:
        default = f"`{default}`"
    allowed = row["allowed"].replace(" · ", ", ")
    variable = f"`{row['variable']}`" + (f", `{row['file']}`" if "file" in row else "")
    return f"| {variable} | {row['meaning']} | {default} | {allowed} |\n"
