"""What the core asks of a build's signature; who checks signatures is a hook (`edgekit.doors.HOOKS`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgekit import doors
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.result import RESULT
from edgekit.artifact.run_record import MODEL, PARTS, read_parts
from edgekit.artifact.store import MANIFEST, read_artifact
from edgekit.errors import ArtifactError
from edgekit.storage import verified_io
from edgekit.storage.files import digest_text


@dataclass(frozen=True)
class SignatureInfo:
    """What a signature vouches for.

    Attributes:
        root: The build folder.
        records: Hashes by path in the build.
        unsigned: What a report shows and it does not vouch for, by path in the build: imported results, and the record
            of runs where it says of a target what it did not say when it was signed.
    """

    root: Path
    records: Mapping[str, str]
    unsigned: tuple[str, ...] = ()

    def require_artifact(self, folder: Path, manifest: Manifest) -> None:
        """See that an artifact is one that was signed, in this place, with these verdicts.

        Its results may be others: each judgement measures other times.

        Raises:
            ArtifactError: If it is not.
        """
        self.require(f"{folder.name}/{MANIFEST}", artifact_digest(manifest))

    def require_results(self, folder: Path, manifest: Manifest) -> None:
        """See that an artifact's results are those that were signed too.

        Raises:
            ArtifactError: If they are not.
        """
        self.require(f"{folder.name}/{RESULT}", results_digest(manifest))

    def require(self, path: str, digest: str) -> None:
        """See that a record is the one that was signed.

        Raises:
            ArtifactError: If it is not.
        """
        if path not in self.records:
            raise ArtifactError(
                f"'{self.root / path}' is not in the build's signature: remove it, or have it exported with --sign"
            )
        if self.records[path] != digest:
            raise ArtifactError(
                f"'{self.root / path}' is not what was signed: it was changed, or `verify` judged the artifact again "
                "since; take the build from its author again"
            )


def require_whole(root: Path, key: Path) -> None:
    """See that a build and every artifact in it that nobody rejected are signed by a key, with their results.

    Of a model of parts each part's build is asked: the whole's own record has no signature.

    Raises:
        ArtifactError: If anything is not.
    """
    if (root / PARTS).is_file() and not (root / MODEL).exists():
        for part in read_parts(root).parts.values():
            require_whole(root / part.folder, key)
        return
    signed = doors.hook("require_signature")(root, key)
    for folder in sorted(path.parent for path in root.glob(f"*/{MANIFEST}")):
        manifest = read_artifact(folder)
        if not manifest.rejected:  # nothing uses those, and nobody signs them
            signed.require_artifact(folder, manifest)
            signed.require_results(folder, manifest)


def artifact_digest(manifest: Manifest) -> str:
    """Hash of a manifest without the names of its results."""
    return verified_io.seal_of(manifest.model_copy(update={"results": ()}).model_dump(mode="json"))


def results_digest(manifest: Manifest) -> str:
    """Return the hash of the names and hashes of a manifest's results."""
    return digest_text("\n".join(f"{file.path} {file.sha256}" for file in manifest.results))
