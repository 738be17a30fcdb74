"""Signatures of model files: whose key vouches for a file, and that it has not changed since.

The signature of ``vendor.usfda`` lies beside it as ``vendor.usfda.sig``, in the format of OpenSSF's ``model-signing``,
which makes and checks it: that library's own command takes our signatures, and we take those that it makes of a single
file. A signature is untrusted input as well. It shows whose a file is, not that the file is harmless.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .errors import InputError
from .files import atomic_write
from .modelcard import model_file
from .modelfile import MESSAGE, member_sizes, read_model_file

if TYPE_CHECKING:
    from model_signing.verifying import Config as Verifier

SUFFIX = ".sig"
LARGEST = 2**18  # bytes of a signature, or of a key: room for a hundred certificates
CURVES = ("secp256r1", "secp384r1", "secp521r1")  # that the library takes, also known as P-256, P-384, P-521


def sign(
    path: str | Path, key: str | Path, *, certificate: str | Path | None = None, password: str | None = None
) -> Path:
    """Write the signature of a model file atomically.

    Parameters
    ----------
    path : str or Path
        The model file, or a folder with ``model.usfda`` in it.
    key : str or Path
        The private key (PEM, elliptic curve).
    certificate : str or Path, optional
        The certificate of that key (PEM), followed by those between it and the one that the client trusts.
    password : str, optional
        Of the key, where it has one.

    Returns
    -------
    Path
        Of the signature.
    """
    _check_installed()
    from model_signing import signing

    file = model_file(Path(path))
    read_model_file(file)  # what cannot be read is not worth a signature
    with _private_key(Path(key), password) as plain, tempfile.TemporaryDirectory() as folder:
        try:
            config = signing.Config()  # type: ignore[no-untyped-call]
            if certificate is None:
                config.use_elliptic_key_signer(private_key=plain)
            else:  # the library wants a chain; the signer's own certificate may be one of it
                chain = [Path(certificate)]
                config.use_certificate_signer(private_key=plain, signing_certificate=chain[0], certificate_chain=chain)
        except (OSError, ValueError) as error:
            raise InputError(f"{certificate}: no certificate of {key} in PEM ({_reason(error)})") from None
        made, signature = Path(folder, "made"), signature_of(file)
        config.set_hashing_config(_hashing()).sign(file.resolve(), made)
        with atomic_write(signature) as out:
            out.write(made.read_bytes())
    return signature


def verify(path: str | Path, key: str | Path) -> str:
    """Check the signature of a model file; anything but a valid one is an error.

    Parameters
    ----------
    path : str or Path
        The model file, or a folder with ``model.usfda`` in it.
    key : str or Path
        Whom to trust (PEM): a public key, or the certificate of an authority that vouches for the signer's.

    Returns
    -------
    str
        The sha256 of the file that was signed, and that was found.
    """
    _check_installed()
    file = model_file(Path(path))
    member_sizes(file)  # a model file by its headers, so no larger than one may be
    trusted, signature, whole = _trusted(Path(key)), signature_of(file), _hashing()
    if not signature.is_file():
        raise InputError(f"{file}: is not signed: there is no {signature.name} beside it")
    _read(signature)  # an error where it is too large to be parsed
    try:
        with redirect_stdout(sys.stderr):  # the library prints its warnings
            trusted.set_hashing_config(whole).verify(file.resolve(), signature)
    except Exception as error:  # of the library, which an untrusted signature makes fail in many ways
        raise InputError(_refusal(error, file, Path(key), hashed=whole.found is not None)) from None
    (signed,) = whole.found.resource_descriptors()
    return cast(str, signed.digest.digest_hex)


def has_password(key: str | Path) -> bool:
    """Whether a private key can be read with its password alone."""
    return b"ENCRYPTED" in _read(Path(key))


def _check_installed() -> None:
    try:
        import model_signing  # noqa: F401
    except ImportError:
        raise InputError("signatures need: pip install 'usfda[sign]'") from None


def signature_of(file: Path) -> Path:
    """Where the signature of a model file lies, if there is one."""
    return file.with_name(file.name + SUFFIX)


def _hashing() -> Any:
    """How a file is hashed: sha256 over all of it, whatever a signature asks to leave out or to do otherwise."""
    from model_signing import hashing

    class Whole(hashing.Config):
        found = None  # after the signature was found to be valid

        def add_ignored_paths(self, *, model_path: Any, paths: Any) -> None:
            pass

        def hash(self, model_path: Any, *, files_to_hash: Any = None) -> Any:
            self.found = super().hash(model_path)
            return self.found

    return Whole().set_ignored_paths(paths=[], ignore_git_paths=False)  # type: ignore[no-untyped-call]


def _trusted(key: Path) -> Verifier:
    """What checks signatures, by a public key or by a certificate, whichever the file has."""
    from model_signing import verifying

    content, config = _read(key), verifying.Config()  # type: ignore[no-untyped-call]
    if b"PRIVATE KEY-" in content:
        raise InputError(f"{key}: is the private key, which stays with its owner; give the public one")
    try:
        if b"BEGIN CERTIFICATE-" in content:
            return config.use_certificate_verifier(certificate_chain=[key])
        return config.use_elliptic_key_verifier(public_key=key)
    except (OSError, ValueError, AttributeError) as error:  # the last one of a key that has no curve
        raise InputError(f"{key}: no public key of a curve and no certificate in PEM ({_reason(error)})") from None


def _refusal(error: Exception, file: Path, key: Path, hashed: bool) -> str:
    from cryptography.exceptions import InvalidSignature
    from OpenSSL.crypto import X509StoreContextError

    signature = signature_of(file)
    if hashed:
        return f"{file}: is not what {signature.name} was made for: it was changed, or the two do not belong together"
    if type(error) in (InvalidSignature, X509StoreContextError, ValueError):
        return f"{file}: is not signed with {key} ({_reason(error)})"
    return f"{signature}: not a signature of model-signing, or damaged ({_reason(error)})"


def _reason(error: Exception) -> str:
    return f"{type(error).__name__} {' '.join(str(error).split())}"[:MESSAGE].strip()


def _read(file: Path) -> bytes:
    """A small file; no more of it is read than it may have."""
    try:
        with file.open("rb") as content:
            found = content.read(LARGEST + 1)
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from None
    if len(found) > LARGEST:
        raise InputError(f"{file}: more than the {LARGEST:,} bytes that a signature or a key may have")
    return found


@contextmanager
def _private_key(key: Path, password: str | None) -> Iterator[Path]:
    """The key without its password, through a pipe.

    The library cannot read one that belongs to a certificate and has a password, and a copy without password must not
    touch the disk.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    locked = has_password(key)
    if locked and password is None:
        raise InputError(f"{key}: has a password; give it in the environment variable USFDA_KEY_PASSWORD")
    try:
        secret = password.encode() if locked and password is not None else None
        loaded = serialization.load_pem_private_key(_read(key), secret)
    except (ValueError, TypeError) as error:
        wrong = "the password is wrong, or it is" if locked else "is"
        raise InputError(f"{key}: {wrong} no private key in PEM ({_reason(error)})") from None
    if not isinstance(loaded, ec.EllipticCurvePrivateKey) or loaded.curve.name not in CURVES:
        raise InputError(
            f"{key}: is no key of the curves P-256, P-384 or P-521; `usfda sign --help` shows how to make one"
        )
    plain = loaded.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    reading, writing = os.pipe()
    try:
        os.write(writing, plain)
        os.close(writing)
        yield Path(f"/dev/fd/{reading}")
    finally:
        os.close(reading)
