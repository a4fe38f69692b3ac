"""Keys that sign builds in tests."""

from __future__ import annotations

from importlib import util
from pathlib import Path

import pytest

NO_LIBRARY = pytest.mark.skipif(
    util.find_spec("model_signing") is None, reason="no model-signing: pip install -e '.[sign]'"
)


def write_keys(folder: Path, name: str, curve: str = "SECP256R1", passphrase: bytes = b"") -> tuple[Path, Path]:
    """Write a private and a public key in PEM format."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    made = rsa.generate_private_key(65537, 2048) if curve == "RSA" else ec.generate_private_key(getattr(ec, curve)())
    locked = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    pem, kind = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(made.private_bytes(pem, serialization.PrivateFormat.PKCS8, locked))
    public.write_bytes(made.public_key().public_bytes(pem, kind))
    return private, public
