"""What every group of settings is: frozen, closed, listed by variable; what is wrong with one."""

import ast
import inspect
from collections.abc import Iterator
from functools import cache, reduce
from itertools import pairwise
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict

from hapax.settings.value_types import Form

PREFIX: Final = "HAPAX_"
UNSET_TEXT: Final = "unset"


class SettingsGroup(BaseModel):
    """Settings that belong together.

    A field is named with its unit, which its environment variable has not; how it is written is in
    its annotation, a ``Form``, and what it means in the text below it.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        hide_input_in_errors=True,
        alias_generator=lambda name: name.removesuffix("_ms"),
    )


class Variable(NamedTuple):
    """One environment variable and the field it fills.

    path      names from the root: ("transaction", "interval"); of attributes: ``fields``
    group     what the field belongs to
    default   as pages have it; None: required
    value_unset  the value's text when nothing is set; None: required, or of the machine
    example   for required ones
    """

    path: tuple[str, ...]
    fields: tuple[str, ...]
    group: type[BaseModel]
    form: Form
    default: str | None
    value_unset: str | None
    example: str

    @property
    def name(self) -> str:
        """``HAPAX_TRANSACTION__INTERVAL``."""
        return PREFIX + "__".join(self.path).upper()

    @property
    def meaning(self) -> str:
        """A sentence or two, with the reason of the default where it is not obvious."""
        return _meanings(self.group)[self.fields[-1]]

    @property
    def file_name(self) -> str | None:
        """The variable that names a file with the value; None where it can hold no secret."""
        return f"{self.name}_FILE" if self.form.secret or self.form.filed else None

    def shown(self, settings: BaseModel) -> str:
        return _shown(self.value(settings), self.form)

    def value(self, settings: BaseModel) -> Any:
        return reduce(getattr, self.fields, settings)


def variables(
    group: type[BaseModel], path: tuple[str, ...] = (), fields: tuple[str, ...] = ()
) -> Iterator[Variable]:
    for attribute, field in group.model_fields.items():
        here, inside = (*path, field.alias or attribute), (*fields, attribute)
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, SettingsGroup):
            yield from variables(kind, here, inside)
            continue
        form = next(item for item in field.metadata if isinstance(item, Form))
        value = field.get_default(call_default_factory=True)
        unset = None if field.is_required() else _shown(value, form)
        pages: Any = field.json_schema_extra or {"default": unset}
        example = str((field.examples or [""])[0])
        yield Variable(here, inside, group, form, pages["default"], unset, example)


def _shown(value: Any, form: Form) -> str:
    return UNSET_TEXT if value is None else form.show(value)


@cache
def _meanings(group: type[BaseModel]) -> dict[str, str]:
    """Return what is written below each field. A start does not read it: only pages and errors."""
    (found,) = ast.parse(inspect.getsource(group)).body
    return {
        field.target.id: " ".join(str(text.value.value).split())
        for field, text in pairwise(found.body if isinstance(found, ast.ClassDef) else ())
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }
