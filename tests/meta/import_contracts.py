"""Two kinds of import contract that import-linter does not have, used by pyproject.toml.

doors       a library may be imported by the modules that match a door, and by no other
knows_only  layers may import the standard library, each other and the libraries named
"""

import sys
from fnmatch import fnmatchcase
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class _ListedImports(Contract):
    """A contract that is broken by single imports, each shown with its line.

    The fields of a contract are declared on the class and hold their values on the instance,
    which no type can say: hence Any below.
    """

    def offences(self, graph: ImportGraph) -> list[tuple[str, str]]:
        raise NotImplementedError

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: FBT001 - import-linter calls it so
        lines = [
            f"{importer} (l.{detail['line_number']}) imports {imported}"
            for importer, imported in sorted(self.offences(graph))
            for detail in graph.get_import_details(importer=importer, imported=imported)
        ]
        return ContractCheck(kept=not lines, metadata={"lines": lines})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["lines"]:
            output.print_error(f"- {line}", bold=False)


class Doors(_ListedImports):
    """``libraries`` are imported by ``doors`` (module names with ``*``) and nowhere else."""

    libraries: Any = fields.ListField(subfield=fields.StringField())
    doors: Any = fields.ListField(subfield=fields.StringField())

    def offences(self, graph: ImportGraph) -> list[tuple[str, str]]:
        return [
            (importer, library)
            for library in self.libraries
            if library in graph.modules
            for importer in graph.find_modules_that_directly_import(library)
            if not any(fnmatchcase(importer, door) for door in self.doors)
        ]


class KnowsOnly(_ListedImports):
    """``layers`` import the standard library, each other and ``libraries``, and nothing else."""

    layers: Any = fields.ListField(subfield=fields.StringField())
    libraries: Any = fields.ListField(subfield=fields.StringField())

    def offences(self, graph: ImportGraph) -> list[tuple[str, str]]:
        known = {*sys.stdlib_module_names, *self.libraries}
        return [
            (importer, imported)
            for layer in self.layers
            for importer in (layer, *graph.find_descendants(layer))
            for imported in graph.find_modules_directly_imported_by(importer)
            if imported.split(".")[0] not in known
            and not any(f"{imported}.".startswith(f"{each}.") for each in self.layers)
        ]
