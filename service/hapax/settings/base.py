"""What every group of settings is: frozen, closed, listed by variable; what is wrong with one."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

from hapax.settings.value_types import Form

PREFIX: Final = "HAPAX_"
UNSET_TEXT: Final = "unset"


class Problem(NamedTuple):
    """What is wrong, in one sentence.

    ``variables``: those it is about. A rule is not judged when one of them is wrong by itself.
    """

    variables: tuple[str, ...]
    sentence: str


class SettingsGroup(BaseModel):
    """Settings that belong together.

    A field is named with its unit and has the name of its environment variable as alias; how it is
    written is in its annotation, a ``Form``.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        hide_input_in_errors=True,
    )


class Variable(NamedTuple):
    """One environment variable and the field it fills.

    path      aliases from the root: ("transaction", "interval")
    fields    attributes from the root: ("transaction", "interval_ms")
    default   as pages have it; None: required
    value_unset  the value's text when nothing is set; None: required, or of the machine
    meaning   a sentence or two, with the reason of the default where it is not obvious
    example   for required ones
    """

    path: tuple[str, ...]
    fields: tuple[str, ...]
    form: Form
    default: str | None
    value_unset: str | None
    meaning: str
    example: str

    @property
    def name(self) -> str:
        """``HAPAX_TRANSACTION__INTERVAL``."""
        return PREFIX + "__".join(self.path).upper()

    @property
    def file_name(self) -> str | None:
        """The variable that names a file with the value; None where it can hold no secret."""
        return f"{self.name}_FILE" if self.form.secret or self.form.filed else None

    def shown(self, settings: BaseModel) -> str:
        value = self.value(settings)
        return UNSET_TEXT if value is None else self.form.show(value)

    def value(self, settings: BaseModel) -> Any:
        value: Any = settings
        for field in self.fields:
            value = getattr(value, field)
        return value


def variables(
    group: type[BaseModel], path: tuple[str, ...] = (), fields: tuple[str, ...] = ()
) -> Iterator[Variable]:
    for attribute, field in group.model_fields.items():
        here, inside = (*path, field.alias or attribute), (*fields, attribute)
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, SettingsGroup):
            yield from variables(kind, here, inside)
        else:
            yield _variable(field, here, inside)


def _variable(field: FieldInfo, path: tuple[str, ...], fields: tuple[str, ...]) -> Variable:
    form = next(item for item in field.metadata if isinstance(item, Form))
    return Variable(
        path=path,
        fields=fields,
        form=form,
        default=_default_text(field, form),
        value_unset=_unset_text(field, form),
        meaning=field.description or "",
        example=str((field.examples or [""])[0]),
    )


def _default_text(field: FieldInfo, form: Form) -> str | None:
    if isinstance(field.json_schema_extra, dict):
        return str(field.json_schema_extra["default"])
    if field.is_required():
        return None
    return _shown(field.default, form)


def _unset_text(field: FieldInfo, form: Form) -> str | None:
    if field.is_required():
        return None
    return _shown(field.get_default(call_default_factory=True), form)


def _shown(value: Any, form: Form) -> str:
    return UNSET_TEXT if value is None else form.show(value)
