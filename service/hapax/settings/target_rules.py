"""Rules of outputs on another cluster: what does not go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.settings.base import Problem
from hapax.settings.security_rules import security_problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.settings.model import Settings

_CLUSTER: Final = "HAPAX_OUTPUT__KAFKA__"
_SERVERS: Final = f"{_CLUSTER}BOOTSTRAP_SERVERS"


def target_problems(settings: Settings) -> Iterator[Problem]:
    """Yield every rule of another output cluster that these settings break."""
    output = settings.output.kafka
    if not settings.elsewhere:
        # Left alone, the service would write to the cluster of the input.
        given = {"PROPERTIES": output.properties} | output.security.model_dump(
            exclude_defaults=True
        )
        for name in (name.upper() for name, value in given.items() if value):
            variable = _CLUSTER + (name if name == "PROPERTIES" else f"SECURITY__{name}")
            yield Problem(
                (_SERVERS, variable),
                f"{variable} is set but {_SERVERS} is unset: name the brokers of the other"
                " cluster, or remove it",
            )
        return
    yield from security_problems(output.security, _CLUSTER)
    yield from _unsupported(settings)


def _unsupported(settings: Settings) -> Iterator[Problem]:
    """Yield what cannot keep its progress on another cluster."""
    start, end, topic = settings.input.start, settings.input.end, settings.retry_topic
    retry = "HAPAX_RETRY__TOPIC" if settings.retry.topic else "HAPAX_RETRY__LATER"
    refused = (
        (
            settings.output.kafka.bootstrap_servers == settings.kafka.bootstrap_servers,
            "HAPAX_KAFKA__BOOTSTRAP_SERVERS",
            (
                ": they are the same brokers; remove the first, and outputs go there in one"
                " transaction with the group's offsets"
            ),
        ),
        (
            settings.engine != "worker",
            "HAPAX_ENGINE",
            f"={settings.engine}, which writes to the cluster it reads: choose the worker",
        ),
        (
            settings.guarantee != "exactly_once",
            "HAPAX_GUARANTEE",
            f"={settings.guarantee}, which keeps no progress there: choose exactly_once",
        ),
        (
            settings.fast == "on",
            "HAPAX_FAST",
            "=on: outputs take the path in Python, which sorts them by partition; set it to auto",
        ),
        (
            topic is not None,
            retry,
            (
                f": records that wait in {topic} would be on a cluster that the group does not"
                " read; remove it"
            ),
        ),
        (
            start not in {"earliest", "refuse"},
            "HAPAX_INPUT__START",
            (
                f"={start}: the place is looked up once and kept with the group's offsets, which"
                " do not count there; choose earliest or refuse"
            ),
        ),
        (
            end is not None,
            "HAPAX_INPUT__END",
            (
                f"={end}: the end is looked up once and kept with the group's offsets, which do"
                " not count there; remove it"
            ),
        ),
    )
    for broken, variable, why in refused:
        if broken:
            yield Problem(
                (_SERVERS, variable),
                f"{_SERVERS}={settings.output.kafka.bootstrap_servers} does not go with {variable}"
                f"{why}",
            )
