"""The allow-list of what targets import is checked, and an import that it lacks is found."""

import grimp
import pytest

from tests.import_contracts import AllowListContract

RULES = {"source_modules": ["edgekit_targets"], "held_packages": ["edgekit"]}
ENOUGH = ["edgekit.doors", "edgekit.target", "edgekit.artifact", "edgekit.errors", "edgekit.runtime", "edgekit.model"]
REST = ["edgekit.reference", "edgekit.judge", "edgekit.evaluate", "edgekit.cli", "edgekit.api", "edgekit.storage"]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("edgekit", "edgekit_targets", cache_dir=None, exclude_type_checking_imports=True)


def contract(allowed: list[str]) -> AllowListContract:
    return AllowListContract("targets", {"contracts": []}, {**RULES, "allowed_modules": allowed})


def test_what_is_allowed_is_kept(graph: grimp.ImportGraph) -> None:
    assert contract([*ENOUGH, *REST]).check(graph, verbose=False).kept


def test_what_the_list_lacks_is_found(graph: grimp.ImportGraph) -> None:
    found = contract(ENOUGH).check(graph, verbose=False)
    assert not found.kept
    assert ("edgekit_targets.web.demo", "edgekit.api") in found.metadata["found"]
    assert not any(imported.startswith("edgekit.model") for _, imported in found.metadata["found"])
