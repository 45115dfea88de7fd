"""``hapax pause`` and ``hapax resume``: take nothing for a while, and stay a member."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hapax.commands.screen import (
    JsonFlag,
    environment_settings,
    print_json,
    printable,
    progress_line,
    refusals,
)
from hapax.core.errors import ConfigurationError, HapaxError

if TYPE_CHECKING:
    from hapax.settings import Settings

Port = Annotated[
    int | None,
    typer.Option(
        min=1, max=65_535, help="Telemetry port of the process; default: HAPAX_TELEMETRY__PORT."
    ),
]

TIMEOUT_S, WITHIN_S, REST_S = 5.0, 30.0, 0.1
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - where to ask instead


def pause(port: Port = None, as_json: JsonFlag = False) -> None:
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


def resume(port: Port = None, as_json: JsonFlag = False) -> None:
    """Make the process on this machine take records again.

    Examples:
      hapax resume
      kubectl exec orders-clean-0 -- hapax resume
    """
    _command("resume", port, paused=False, as_json=as_json)


def _command(name: str, port: int | None, *, paused: bool, as_json: bool) -> None:
    with refusals(as_json=as_json):
        settings = environment_settings()
        asked = _Process(settings, port or settings.telemetry.port)
        asked.post(f"/{name}")
        with progress_line() as line:
            status = asked.await_paused(line.show, paused=paused)
    if as_json:
        keys = ("app", "instance", "state", "paused_by_operator")
        print_json({key: status.get(key) for key in keys})
        return
    done = "takes no more records" if paused else "takes records again"
    typer.echo(printable(f"{status.get('app')}, {status.get('instance')}: {done}"))


class _Process:
    """The telemetry port of a process on this machine."""

    def __init__(self, settings: Settings, port: int) -> None:
        if not port:
            raise ConfigurationError(
                ["HAPAX_TELEMETRY__PORT=0: the process listens on any port, name it by --port"]
            )
        address = settings.telemetry.address
        self._address, self._port = _EVERYWHERE.get(address, address), port

    def post(self, path: str) -> None:
        """Give a command. Raises HapaxError when it is refused."""
        status, answer = self._ask("POST", path)
        if status in {404, 405}:
            raise HapaxError(
                f"the process at {self._place} knows no {path[1:]}: it runs an older version"
            )
        if status >= 400:  # HTTP's errors
            raise HapaxError(f"the process at {self._place} refuses: {answer.get('error')}")

    def await_paused(self, tell: Any, *, paused: bool) -> dict[str, Any]:
        """Wait until the process says so, after the batch that it works on; return its status."""
        give_up_s = time.monotonic() + WITHIN_S
        while True:
            status, answer = self._ask("GET", "/status.json")
            # Draining, it takes nothing more anyway.
            if answer.get("paused_by_operator") is paused or answer.get("state") == "draining":
                return answer
            if status >= 400 or time.monotonic() > give_up_s:
                raise HapaxError(
                    f"the process at {self._place} accepted the request and did not confirm it "
                    f"within"
                    f" {WITHIN_S:.0f} s; its state: {answer.get('state')}"
                )
            tell("waiting for the batch under way")
            time.sleep(REST_S)

    @property
    def _place(self) -> str:
        return f"{self._address}:{self._port}"

    def _ask(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        from http.client import HTTPConnection, HTTPException

        connection = HTTPConnection(self._address, self._port, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, headers={"Hapax-Command": "1"})
            answer = connection.getresponse()
            found = json.loads(answer.read())
        except (OSError, HTTPException, ValueError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise HapaxError(
                f"no process answers at {self._place} ({why}): run this command where hapax run "
                f"runs, with"
                " its environment, or name its telemetry port by --port"
            ) from error
        finally:
            connection.close()
        return answer.status, found if isinstance(found, dict) else {}
