"""What ``/status.json`` shows: who this is, and how it is. Nothing secret, nothing per record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from service.telemetry.health import Health


def status_of(identity: Mapping[str, str], health: Health) -> Callable[[], dict[str, Any]]:
    """Return a function that describes this moment; ``identity`` never changes."""

    def status() -> dict[str, Any]:
        verdict = health.readyz()
        return {
            **identity,
            "ready": verdict.ok,
            "reasons": verdict.reasons,
            "partitions": [
                {"topic": topic, "partition": partition}
                for topic, partition in sorted(health.partitions)
            ],
        }

    return status
