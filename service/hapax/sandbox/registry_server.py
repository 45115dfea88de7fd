"""Apicurio Registry: a schema registry with the API of Confluent's, as far as it has it."""

from __future__ import annotations

import http.client
from http import HTTPStatus
from typing import TYPE_CHECKING

from hapax.sandbox import jars, machine
from hapax.sandbox.ports import LOOPBACK
from hapax.sandbox.processes import READY_TIMEOUT_S, ManagedProcess

if TYPE_CHECKING:
    from pathlib import Path

    from hapax.sandbox.ports import Ports
    from hapax.sandbox.watchdog import ChildWatchdog

_API = "/apis/ccompat/v7"
_PROGRAM = f"apicurio-registry-app-{jars.REGISTRY_VERSION}-runner.jar"
_ANSWER_TIMEOUT_S = 1.0
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class RegistryServer(ManagedProcess):
    """One registry. Data: ``folder``, kept over restarts.

    url  of the API of Confluent's: what HAPAX_REGISTRY__URL is given

    It gives neither descriptors of Protobuf schemas nor GUIDs.
    """

    def __init__(self, folder: Path, ports: Ports, watchdog: ChildWatchdog) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = ports.reserve()
        self.url = f"http://{LOOPBACK}:{self.port}{_API}"
        super().__init__("Schema registry", self._command_in(folder), folder / "log", watchdog)

    def _command_in(self, folder: Path) -> list[str | Path]:
        properties = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": self.port,
            "quarkus.http.access-log.enabled": "false",
            "apicurio.storage.kind": "sql",
            "apicurio.storage.sql.kind": "h2",
            # An answered write has reached the file: by default H2 keeps it back for a while, and a
            # kill right after the answer lost the schema in 4 tries of 4 (its id goes to another).
            "apicurio.datasource.url": f"jdbc:h2:file:{folder / 'registry'};WRITE_DELAY=0",
        }
        program = jars.fetched(jars.registry()) / _PROGRAM
        return [
            *(machine.java(), *_JVM),
            *(f"-D{name}={value}" for name, value in properties.items()),
            *("-jar", program),
        ]

    def environment(self) -> dict[str, str]:
        """Return the variable that points Hapax here."""
        return {"HAPAX_REGISTRY__URL": self.url}

    def await_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until it lists its subjects."""
        self.wait_until(self._answers, timeout_s)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=_ANSWER_TIMEOUT_S)
        try:
            connection.request("GET", f"{_API}/subjects")
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
