"""``hapax run``: the service itself."""

from __future__ import annotations

import os
import sys

from hapax.core.errors import ConfigurationError, ExitCode
from hapax.core.working_folder import import_from_here
from hapax.telemetry.line_queue import write_within


def run(environ: dict[str, str] | None = None, given_by: dict[str, str] | None = None) -> int:
    """Run until stopped; return the exit code. Problems go to stderr, one sentence a line."""
    import_from_here()
    try:
        from hapax.settings import load_with_origins

        settings, _by = load_with_origins(os.environ if environ is None else environ, given_by)
        from hapax.wiring import serve

        return int(serve(settings))
    except ConfigurationError as error:
        from hapax.settings.secrets import Strike, secrets_around

        strike = Strike(secrets_around(os.environ if environ is None else environ))
        text = "".join(f"hapax: {strike(problem)}\n" for problem in error.problems)
        write_within(lambda: sys.stderr.write(text))
        return int(ExitCode.CONFIGURATION)
