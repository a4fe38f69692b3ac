"""A contract for import-linter: some packages may import only what a list allows."""

from __future__ import annotations

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class AllowListContract(Contract):
    """Direct imports of the source packages go to the allowed modules, to themselves, or outside of the root packages.

    Attributes:
        source_modules: Packages that are held to the list.
        allowed_modules: What they may import, with all that is below.
        held_packages: Root packages that the list is about; all others may be imported freely.
    """

    type_name = "allow_list"

    source_modules = fields.SetField(subfield=fields.ModuleField())
    allowed_modules = fields.SetField(subfield=fields.ModuleField())
    held_packages = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Look at every direct import of the sources."""
        allowed = {module.name for module in self.allowed_modules}  # type: ignore[attr-defined]  # fields are descriptors
        found = []
        for source in (module.name for module in self.source_modules):  # type: ignore[attr-defined]
            for importer in sorted({source, *graph.find_descendants(source)}):
                for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                    held = imported.partition(".")[0] in self.held_packages  # type: ignore[operator]
                    if held and not _below(imported, allowed):
                        found.append((importer, imported))
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name each import that the list lacks."""
        found: list[tuple[str, str]] = _metadata(check)["found"]
        for importer, imported in found:
            output.print_error(f"{importer} imports {imported}, which the list does not allow", bold=False)


def _below(module: str, allowed: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


def _metadata(check: ContractCheck) -> dict[str, Any]:
    return dict(check.metadata)
