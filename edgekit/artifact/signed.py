"""Signature of a build as the core uses it; a hook checks signatures (`edgekit.doors.HOOKS`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgekit.artifact.manifest import Manifest
from edgekit.artifact.result import RESULT
from edgekit.artifact.store import MANIFEST
from edgekit.errors import ArtifactError
from edgekit.storage import verified_io
from edgekit.storage.files import digest_text


@dataclass(frozen=True)
class SignatureInfo:
    """Files that a signature covers.

    Attributes:
        root: The build folder.
        records: Hashes by path in the build.
        unsigned: Parts of a report that it does not cover, by path in the build: imported results, and the record of
            runs if a target's status changed since signing.
    """

    root: Path
    records: Mapping[str, str]
    unsigned: tuple[str, ...] = ()

    def require_artifact(self, folder: Path, manifest: Manifest) -> None:
        """Raise unless an artifact was signed in this place with these verdicts.

        Its results may differ: each judgement measures new times.

        Raises:
            ArtifactError: If it differs.
        """
        self.require(f"{folder.name}/{MANIFEST}", artifact_digest(manifest))

    def require_results(self, folder: Path, manifest: Manifest) -> None:
        """Raise unless an artifact's results were signed too.

        Raises:
            ArtifactError: If they differ.
        """
        self.require(f"{folder.name}/{RESULT}", results_digest(manifest))

    def require(self, path: str, digest: str) -> None:
        """Raise unless a record is the signed one.

        Raises:
            ArtifactError: If it differs.
        """
        if path not in self.records:
            raise ArtifactError(
                f"'{self.root / path}' is not in the build's signature. Remove it, or export it with --sign"
            )
        if self.records[path] != digest:
            raise ArtifactError(
                f"'{self.root / path}' is not what was signed: it was changed, or `verify` judged the artifact again "
                "since. Get the build from its author again"
            )


def artifact_digest(manifest: Manifest) -> str:
    """Return the hash of a manifest without the names of its results."""
    return verified_io.seal_of(manifest.model_copy(update={"results": ()}).model_dump(mode="json"))


def results_digest(manifest: Manifest) -> str:
    """Return the hash of the names and hashes of a manifest's results."""
    return digest_text("\n".join(f"{file.path} {file.sha256}" for file in manifest.results))
