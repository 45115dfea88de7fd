"""What a transform opens before its first call, and closes after its last one."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from hapax.core.errors import ConfigurationError
from hapax.core.forms import form_of
from hapax.core.interrupt import is_from_outside

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.forms import TransformForm


class CallLifetime:
    """Opens and closes one transform. ``run`` waits for an awaitable of it."""

    def __init__(self, form: TransformForm, run: Callable[[Any], Any]) -> None:
        self.form = form
        self._run = run
        self._context: Any = None
        self._opened = False

    def open(self) -> TransformForm:
        """Set up; return the form to call. Raises ConfigurationError when that fails."""
        try:
            form = self._enter() if self.form.context else self.form
            if form.setup is not None:
                self._finish(form.setup())
        except BaseException as error:
            if isinstance(error, ConfigurationError) or is_from_outside(error):
                raise
            what = "context" if self.form.context else "setup"
            problem = f"HAPAX_TRANSFORM: its {what} has failed: {type(error).__name__}: {error}"
            raise ConfigurationError([problem]) from error
        self.form, self._opened = form, True
        return form

    def close(self) -> None:
        """Tear down; raises what business code raises, as RuntimeError what is no Exception."""
        if not self._opened:
            return
        self._opened = False
        try:
            self._leave()
        except BaseException as error:
            if isinstance(error, Exception) or is_from_outside(error):
                raise
            problem = f"HAPAX_TRANSFORM: its teardown has raised {type(error).__name__}: {error}"
            raise RuntimeError(problem) from error

    def _leave(self) -> None:
        if self._context is not None:
            context, self._context = self._context, None
            leave = getattr(context, "__aexit__", None) or context.__exit__
            self._finish(leave(None, None, None))
        elif self.form.teardown is not None:
            self._finish(self.form.teardown())

    def _enter(self) -> TransformForm:
        context = self.form.function()
        enter = getattr(context, "__aenter__", None) or context.__enter__
        found = self._finish(enter())
        self._context = context
        try:
            form = form_of(found)
        except ValueError as error:
            raise ConfigurationError([f"HAPAX_TRANSFORM: what it yields {error}"]) from error
        if form.context or form.asynchronous != self.form.asynchronous:
            kind = "an async function" if self.form.asynchronous else "a plain function"
            raise ConfigurationError([f"HAPAX_TRANSFORM: this context manager yields {kind}"])
        return form

    def _finish(self, answer: Any) -> Any:
        return self._run(answer) if inspect.isawaitable(answer) else answer
