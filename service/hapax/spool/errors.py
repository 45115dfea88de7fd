"""What can be wrong with a spool. Each message is one sentence or two and says what to do."""

from __future__ import annotations

from typing import ClassVar

from hapax.core.errors import ConfigurationError, ExitCode, HapaxError, StopError


class SpoolFullError(HapaxError):
    """Nothing of this call was accepted: there is no room, on the disk or within its bound."""


class SpoolFailedError(StopError):
    """A write or a sync failed; the next open finds out what was accepted."""


class SpoolDamagedError(StopError):
    """What was acknowledged is not what was written."""

    exit_code: ClassVar[ExitCode] = ExitCode.POSITION_LOST

    def __init__(self, file: str, what: str) -> None:
        super().__init__(
            f"the spool is damaged: {file}: {what}. Nothing from there on is published: bring the"
            " file back, or see docs/publish.md, section Stops"
        )
        self.file = file

    def __reduce__(self) -> tuple[type[StopError], tuple[str]]:
        """Travel between processes with the sentence alone."""
        return StopError, (str(self),)


class SpoolOwnedError(StopError):
    """Another process has the folder."""

    exit_code: ClassVar[ExitCode] = ExitCode.FENCED


class SpoolMovedError(ConfigurationError):
    """The folder is not the one that the spool was made in, or is one of another app."""


class SpoolDisagreesError(StopError):
    """Marker and folder contradict each other: publishing could lose or double records."""

    exit_code: ClassVar[ExitCode] = ExitCode.POSITION_LOST
