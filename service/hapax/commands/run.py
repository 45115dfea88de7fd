"""``hapax run``: the service itself."""

from __future__ import annotations

import os
import sys

from hapax.core.errors import ConfigurationError, ExitCode


def run(environ: dict[str, str] | None = None) -> int:
    """Run until stopped; return the exit code. Problems go to stderr, one sentence a line."""
    try:
        from hapax.settings import load_settings

        settings = load_settings(dict(os.environ) if environ is None else environ)
        from hapax.wiring import serve

        return int(serve(settings))
    except ConfigurationError as error:
        from hapax.settings.secrets import Strike, secrets_around

        strike = Strike(secrets_around(os.environ if environ is None else environ))
        for problem in error.problems:
            sys.stderr.write(f"hapax: {strike(problem)}\n")
        return int(ExitCode.CONFIGURATION)
