"""Puts a mutation into modules that are loaded already, by the code of their functions.

What a module computes as it is loaded cannot be changed so: ``UnreachableError`` asks
for a new process.
"""

import gc
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType
from typing import Any

from tests.mutations.candidates import ROOT, Mutation

Place = tuple[str, int]


class UnreachableError(Exception):
    """The mutation is in what ran as the module was loaded."""


def functions(path: str) -> list[FunctionType]:
    gc.unfreeze()
    every = (one for one in gc.get_objects() if isinstance(one, FunctionType))
    return [one for one in every if one.__code__.co_filename == path]


def put(mutation: Mutation) -> None:
    """Change the functions, or what will be loaded if the module is not."""
    path = str(ROOT / mutation.file)
    source = (ROOT / mutation.file).read_bytes()
    old, new = (compile(text, path, "exec") for text in (source, mutation.apply(source)))
    if not any(getattr(module, "__file__", None) == path for module in list(sys.modules.values())):
        _load_as(path, new)
        return
    if _own(old) != _own(new):
        raise UnreachableError
    before, after = dict(_outermost(old)), dict(_outermost(new))
    changed = {place for place, code in after.items() if before.get(place) != code}
    here = [one for one in functions(path) if _place(one.__code__) in changed]
    if not here:
        raise UnreachableError
    for one in here:
        try:
            one.__code__ = after[_place(one.__code__)]
        except ValueError:  # it closes over other names now
            raise UnreachableError from None


def _place(code: CodeType) -> Place:
    return code.co_qualname, code.co_firstlineno


def _outermost(code: CodeType) -> Iterator[tuple[Place, CodeType]]:
    """Yield the functions of a module and of its classes; those within them are part of them."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            if one.co_flags & 0x2:  # CO_NEWLOCALS: a function; a class has no locals of its own
                yield _place(one), one
            else:
                yield from _outermost(one)


def _own(code: CodeType) -> list[Any]:
    """Return what runs as a module is loaded: its body, and those of its classes."""
    inside = [one for one in code.co_consts if isinstance(one, CodeType)]
    rest = [one for one in code.co_consts if not isinstance(one, CodeType)]
    classes = [_own(one) for one in inside if not one.co_flags & 0x2]
    return [code.co_code, repr(rest), code.co_names, classes]


def _load_as(path: str, code: CodeType) -> None:
    get_code = SourceFileLoader.get_code

    def mutated(self: SourceFileLoader, fullname: str) -> CodeType | None:
        return code if self.path == path else get_code(self, fullname)

    SourceFileLoader.get_code = mutated  # type: ignore[assignment,method-assign]
