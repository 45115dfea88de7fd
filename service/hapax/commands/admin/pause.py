"""``hapax pause`` and ``hapax resume``: take nothing for a while, and stay a member."""

from __future__ import annotations

from typing import Annotated

import typer

from hapax.commands import screen

Port = Annotated[
    int | None,
    typer.Option(
        min=1, max=65_535, help="Telemetry port of the process; default: HAPAX_TELEMETRY__PORT."
    ),
]


def pause(port: Port = None, as_json: screen.JsonFlag = False) -> None:
    """Make the process on this machine take no more records, until resume or its restart.

    The batch under way is finished. The process stays a member of the group and
    keeps its partitions, also those that a rebalance brings: their lag grows.
    Other processes continue, so run it for each process. It uses the telemetry port of this
    machine, which accepts the request from this machine only.

    Examples:
      hapax pause
      kubectl exec orders-clean-0 -- hapax pause
    """
    _command("pause", port, paused=True, as_json=as_json)


def resume(port: Port = None, as_json: screen.JsonFlag = False) -> None:
    """Make the process on this machine take records again.

    Examples:
      hapax resume
      kubectl exec orders-clean-0 -- hapax resume
    """
    _command("resume", port, paused=False, as_json=as_json)


def _command(name: str, port: int | None, *, paused: bool, as_json: bool) -> None:
    with screen.refusals(as_json=as_json) as line:
        settings = screen.environment_settings()
        from hapax.operations.local_process import LocalProcess

        asked = LocalProcess(settings, port)
        asked.status_of(settings.app)
        asked.post(f"/{name}")
        status = asked.await_paused(line.show, paused=paused)
    if as_json:
        keys = ("app", "instance", "state", "paused_by_operator")
        screen.print_json({key: status.get(key) for key in keys})
        return
    done = "takes no more records" if paused else "takes records again"
    screen.say(f"{status.get('app')}, {status.get('instance')}: {done}")
