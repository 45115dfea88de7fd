"""The forms of a transform, recognised by signature and annotation.

``def f(record)``                 one record; with HAPAX_CALL__CONCURRENCY above 1 on threads
``async def f(record)``           one record; calls overlap on an event loop
``def f(records: list[Record])``  a list of records; answers for each of them, in their order
``async def f(records: list[Record])``  both

Each may also be the ``__call__`` of a class, which is made once and may have ``setup`` and
``teardown`` (plain or async), or what a context manager without parameters yields
(``@contextmanager``, ``@asynccontextmanager``): what is opened once is closed when the service
drains.
"""

from __future__ import annotations

import importlib
import inspect
import re
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from hapax.core.errors import ConfigurationError
from hapax.core.interrupt import is_from_outside
from hapax.core.transform import identity
from hapax.core.working_folder import import_own, shadowed_files

if TYPE_CHECKING:
    from hapax.core.records import Record

_LIST = re.compile(r"(\w+\.)*(list|List|Sequence)\b")


class TransformForm(msgspec.Struct, frozen=True):
    """How a transform is called.

    function      takes a record, or a list of records; of a ``context``: what makes the context
    asynchronous  its answer is awaited
    lists         it takes and returns lists
    setup, teardown  called once: before the first call, and after the last one
    annotation    of its parameter: ``data_type`` reads it
    context       ``function`` makes a context manager; what it yields is the transform, whose own
                  form is known when it has been entered
    """

    function: Callable[..., Any]
    asynchronous: bool = False
    lists: bool = False
    setup: Callable[[], Any] | None = None
    teardown: Callable[[], Any] | None = None
    context: bool = False
    annotation: Any = None

    @property
    def plain(self) -> bool:
        """Whether it is a function of one record, without anything to open or close."""
        return not (self.asynchronous or self.lists or self.context or self.setup or self.teardown)


def load_form(name: str | None) -> TransformForm:
    """Import ``package.module:name``; raise ConfigurationError saying what is wrong."""
    if name is None:
        return TransformForm(identity)
    setting = f'HAPAX_TRANSFORM="{name}"'
    module_name, _, attribute = name.partition(":")
    try:
        import_own(module_name.partition(".")[0])
        module = importlib.import_module(module_name)
    except BaseException as error:
        if is_from_outside(error):
            raise
        problem = f"{setting}: cannot import {module_name}: {type(error).__name__}: {error}"
        raise ConfigurationError([problem, *shadowed_files()]) from error
    found = getattr(module, attribute, None)
    if found is None:
        raise ConfigurationError([f"{setting}: {module_name} has no {attribute}"])
    if not callable(found):
        raise ConfigurationError([f"{setting}: {attribute} is not a function"])
    try:
        return form_of(found)
    except ValueError as error:
        raise ConfigurationError([f"{setting}: {attribute} {error}"]) from error


def load_transform(name: str | None) -> Callable[[Record], Any]:
    """Import a transform that is a plain function of one record; raise ConfigurationError."""
    form = load_form(name)
    if not form.plain:
        raise ConfigurationError(
            [f'HAPAX_TRANSFORM="{name}": this is no plain function of one record']
        )
    return form.function


def form_of(named: Callable[..., Any]) -> TransformForm:
    """Return the form of a function, a class or a context manager; raise ValueError on others."""
    found: Any = named
    if inspect.isclass(named):
        try:
            found = named()
        except BaseException as error:
            if is_from_outside(error):
                raise
            raise ValueError(
                f"is a class that cannot be made without arguments: {type(error).__name__}: {error}"
            ) from error
    function: Any = found
    if not inspect.isroutine(found):
        if not callable(found):
            raise ValueError("has no __call__")
        function = found.__call__
    if inspect.isasyncgenfunction(function):
        raise ValueError("is an async function that yields: return a list of Outputs instead")
    annotation = _parameter(function)
    if annotation is _NONE_TAKEN:
        return TransformForm(found, asynchronous=_yields(function, asynchronous=True), context=True)
    return TransformForm(
        found,
        asynchronous=inspect.iscoroutinefunction(function),
        lists=_is_list(annotation),
        setup=getattr(found, "setup", None),
        teardown=getattr(found, "teardown", None),
        annotation=annotation,
    )


def data_type(annotation: Any) -> Any:
    """Return what ``Record[…]`` names in the annotation of a form; Any: nothing.

    Raises ValueError where the name is missing when the program runs.
    """
    if isinstance(annotation, str):
        if "Record[" in annotation:
            raise ValueError(
                f"takes {annotation}, which cannot be looked up: import its names outside of"
                " TYPE_CHECKING, so that the data can be made of that type"
            )
        return Any
    if _is_list(annotation):
        (annotation,) = typing.get_args(annotation) or (None,)
    found = typing.get_args(annotation)
    return found[0] if found else Any


_NONE_TAKEN: Any = object()


def _parameter(function: Callable[..., Any]) -> Any:
    """Return the annotation of the one parameter that a call fills."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None  # written in C, without a signature: it is called with one record
    needed = [one for one in parameters if one.default is one.empty and one.kind in _POSITIONAL]
    named = [one for one in parameters if one.default is one.empty and one.kind is one.KEYWORD_ONLY]
    places = [
        one for one in parameters if one.kind in {*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL}
    ]
    if not parameters and (_yields(function) or _yields(function, asynchronous=True)):
        return _NONE_TAKEN
    if len(needed) > 1 or named or not places:
        raise ValueError(
            f"takes {inspect.signature(function)}: a transform takes one record, or one"
            " list[Record]"
        )
    try:
        hints = typing.get_type_hints(function)
    except (AttributeError, NameError, SyntaxError, TypeError):
        hints = {}  # names that are imported for type checkers alone
    first = (needed or places)[0]
    return hints.get(first.name, first.annotation)


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _yields(function: Callable[..., Any], *, asynchronous: bool = False) -> bool:
    """Whether it is made by ``@contextmanager`` or ``@asynccontextmanager``."""
    inner = inspect.unwrap(function)
    if inner is function:
        return False
    return inspect.isasyncgenfunction(inner) if asynchronous else inspect.isgeneratorfunction(inner)


def _is_list(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return _LIST.match(annotation.strip(" '\"")) is not None
    return (typing.get_origin(annotation) or annotation) in {list, Sequence}
