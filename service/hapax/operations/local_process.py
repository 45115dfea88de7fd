"""The service on this machine: what it reports of itself, and commands to it."""

from __future__ import annotations

import json
import time
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any

from hapax.core.errors import ConfigurationError, HapaxError

if TYPE_CHECKING:
    from hapax.core.ports import Tell
    from hapax.settings import Settings

TIMEOUT_S, WITHIN_S, REST_S = 5.0, 30.0, 0.1
ANSWER_BYTES_MAX = 16 << 20
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - where to ask instead


class LocalProcess:
    """The telemetry port of a process on this machine; default: the port of the settings."""

    def __init__(self, settings: Settings, port: int | None = None) -> None:
        port = settings.telemetry.port if port is None else port
        if port == 0:
            problem = "HAPAX_TELEMETRY__PORT=0: the process listens on any port, name it by --port"
            raise ConfigurationError(problem)
        address = settings.telemetry.address
        self._address, self._port = _EVERYWHERE.get(address, address), port
        self._place = f"{self._address}:{port}"

    def post(self, path: str) -> None:
        """Give a command. Raises HapaxError when it is refused."""
        status, answer = self.ask("POST", path)
        if status in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}:
            raise HapaxError(
                f"the process at {self._place} knows no {path[1:]}: it runs an older version"
            )
        if status >= HTTPStatus.BAD_REQUEST:
            raise HapaxError(f"the process at {self._place} refuses: {answer.get('error')}")

    def await_paused(self, tell: Tell, *, paused: bool) -> dict[str, Any]:
        """Wait until the process says so, after the batch that it works on; return its status."""
        give_up_s = time.monotonic() + WITHIN_S
        while True:
            status, answer = self.ask("GET", "/status.json")
            # Draining, it takes nothing more anyway.
            if answer.get("paused_by_operator") is paused or answer.get("state") == "draining":
                return answer
            if status >= HTTPStatus.BAD_REQUEST or time.monotonic() > give_up_s:
                raise HapaxError(
                    f"the process at {self._place} accepted the request and did not confirm it"
                    f" within {WITHIN_S:.0f} s; its state: {answer.get('state')}"
                )
            tell("waiting for the batch under way")
            time.sleep(REST_S)

    def status_of(self, app: str) -> dict[str, Any]:
        """Return its status. Raises HapaxError when it belongs to another pipeline."""
        status, answer = self.ask("GET", "/status.json")
        if status >= HTTPStatus.BAD_REQUEST or answer.get("app") != app:
            raise HapaxError(
                f"the process at {self._place} is none of {app}: name the telemetry port of one"
                " by --port"
            )
        return answer

    def ask(
        self, method: str, path: str, timeout_s: float = TIMEOUT_S
    ) -> tuple[int, dict[str, Any]]:
        """Return HTTP's status and the answer. Raises HapaxError without one."""
        connection = HTTPConnection(self._address, self._port, timeout=timeout_s)
        try:
            connection.request(method, path, headers={"Hapax-Command": "1"})
            answer = connection.getresponse()
            found = json.loads(answer.read(ANSWER_BYTES_MAX))
        except (OSError, HTTPException, ValueError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise HapaxError(
                f"no process answers at {self._place} ({why}): run this command where hapax run"
                " runs, with its environment, or name its telemetry port by --port"
            ) from error
        finally:
            connection.close()
        return answer.status, found if isinstance(found, dict) else {}
