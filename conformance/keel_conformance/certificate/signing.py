"""Signatures of certificates: ed25519 keys, who signed a run, and whether the signature is right.

The signature is in a separate file in the same folder. It covers the seal, and so everything that the certificate
says, with the time of signing and the public key. The private key is only in its own file.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keel import KeelError, documents

from . import hashes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNATURE = "certificate.sig.json"
FORMAT = 1
ALGORITHM = "ed25519"
MOST_BYTES = 1 << 14
ANOTHER_FILE = "A key is never replaced: name another file."
_PURPOSE = "keel certificate 1"
"""Part of what is signed, so that a signature of something else is not one of a certificate."""
_KEY, _SIGNED = re.compile(r"[A-Za-z0-9+/]{43}="), re.compile(r"[A-Za-z0-9+/]{86}==")


def need_library() -> None:
    """Raises KeelError[missing-extra] if the library of signatures is not installed."""
    if find_spec("cryptography") is None:
        raise KeelError(
            "missing-extra",
            "Signatures need cryptography, which this Python does not have.",
            do='Install the extra: pip install "torch-keel[sign]".',
        )


def make_key(file: Path) -> str:
    """Writes a new private key that only its owner can read, and the public key to the same folder (``.pub``). Returns
    the public key. Raises KeelError[bad-option] if one of the files exists.
    """
    need_library()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    held = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public, public_file = public_text(key), file.with_name(f"{file.name}.pub")
    if os.path.lexists(public_file):
        raise KeelError("bad-option", f"There is a file {public_file}.", do=ANOTHER_FILE)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as e:
        raise KeelError("bad-option", f"There is a file {file}.", do=ANOTHER_FILE) from e
    except OSError as e:
        raise KeelError("bad-option", f"The key cannot be written to {file}.", {"file": e.strerror or str(e)}) from e
    with os.fdopen(descriptor, "wb") as out:
        os.fchmod(descriptor, 0o600)  # whatever the umask is
        out.write(held)
    documents.replace_file(public_file, f"{public}\n".encode())
    return public


def read_key(file: Path) -> Ed25519PrivateKey:
    """The private key in a file. Raises KeelError[bad-option] if others can read the file, and KeelError[bad-file] if
    it holds no such key.
    """
    need_library()
    from cryptography.exceptions import InternalError, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        held = documents.bytes_of(file, MOST_BYTES)
    except documents.Malformed as e:
        raise documents.bad_file(file, e, what="It holds no private key.") from e
    if file.stat().st_mode & 0o077:
        raise KeelError(
            "bad-option",
            f"Others than its owner can use the private key {file}.",
            do=f"Make a new key, or run chmod 600 {file} if nobody else has read it.",
        )
    try:
        key = serialization.load_pem_private_key(held, None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError) as e:
        wrong = documents.Malformed("", "It is not a private key in PEM, without a password.")
        raise documents.bad_file(file, wrong, what="It holds no private key.") from e
    if not isinstance(key, Ed25519PrivateKey):
        wrong = documents.Malformed("", "Its key is not of ed25519.")
        raise documents.bad_file(file, wrong, what="It holds no private key.", do="Make one with keel conform key.")
    return key


def public_text(key: Ed25519PrivateKey) -> str:
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def public_key(text: str) -> str:
    """The public key that a command line names: the key itself, or a file that has it. Raises KeelError."""
    if _KEY.fullmatch(text):
        return text
    file = Path(text)
    try:
        return documents.Item(documents.text_of(file, MOST_BYTES).strip()).like(_KEY, "a public key")
    except documents.Malformed as e:
        raise documents.bad_file(file, e, what="It holds no public key.", do="keel conform key writes one.") from e


def sign_data(data: Mapping[str, Any], key: Ed25519PrivateKey) -> str:
    """The signature of plain data under this program's purpose, in base64."""
    return base64.b64encode(key.sign(_message(data))).decode()


def is_signed(data: Mapping[str, Any], public: str, signature: str) -> bool:
    """True if ``signature`` is that of the data by the owner of the public key."""
    need_library()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public, validate=True))
        key.verify(base64.b64decode(signature, validate=True), _message(data))
    except (InvalidSignature, ValueError):
        return False
    return True


def _message(data: Mapping[str, Any]) -> bytes:
    return f"{_PURPOSE}\n{hashes.of_data(data)}".encode()


# -- certificates ------------------------------------------------------------------------------------------------------


def sign(folder: Path, seal: str, key_file: Path, *, now: datetime | None = None) -> str:
    """Writes the signature of the certificate with this seal into its folder, and returns the public key."""
    key = read_key(key_file)
    body = {
        "format": FORMAT,
        "algorithm": ALGORITHM,
        "seal": seal,
        "signed": (now or datetime.now(UTC)).isoformat(timespec="seconds"),
        "key": public_text(key),
    }
    held = {**body, "signature": sign_data(body, key)}
    documents.replace_file(folder / SIGNATURE, f"{json.dumps(held, indent=1)}\n".encode())
    return body["key"]  # type: ignore[return-value]


def read_signature(folder: Path) -> dict[str, Any] | None:
    """The signature in a folder, checked as data only; None without such a file. Raises KeelError[bad-file]."""
    file = folder / SIGNATURE
    if not file.exists():
        return None
    try:
        item = documents.Item(documents.parsed(documents.text_of(file, MOST_BYTES)))
        fields = item.record(("format", "algorithm", "seal", "signed", "key", "signature"))
        fields["format"].integer(FORMAT, FORMAT)
        fields["algorithm"].one_of([ALGORITHM], ALGORITHM)
        fields["seal"].text(128)
        time_of(fields["signed"])
        fields["key"].like(_KEY, "a public key")
        fields["signature"].like(_SIGNED, "a signature")
    except documents.Malformed as e:
        raise documents.bad_file(file, e, what="It is not the signature of a certificate.") from e
    return {name: field.value for name, field in fields.items()}


def time_of(item: documents.Item) -> datetime:
    """A time with its zone. Raises Malformed."""
    try:
        result = datetime.fromisoformat(item.text(64))
    except ValueError:
        item.refuse("It is not a time.")
    return result if result.tzinfo is not None else item.refuse("It is a time without a zone.")


def wrong_signature(folder: Path, manifest: Mapping[str, Any], trusted: str = "") -> list[str]:
    """What is wrong with the signature in a folder, in sentences. It is right to have none, unless ``trusted`` is the
    public key of the one who must have signed.
    """
    try:
        held = read_signature(folder)
    except KeelError as e:
        return [f"{SIGNATURE} cannot be read: {' '.join((e.reasons or {}).values()) or e.what}"]
    if held is None:
        return [f"It is not signed, and the key {trusted} was to have signed it."] if trusted else []
    wrong = []
    if held["seal"] != manifest["seal"]:
        wrong.append("The signature is of another certificate.")
    if not is_signed({k: v for k, v in held.items() if k != "signature"}, held["key"], held["signature"]):
        wrong.append("The signature is not that of its key.")
    if trusted and held["key"] != trusted:
        wrong.append(f"It is signed by the key {held['key']}, not by {trusted}.")
    if datetime.fromisoformat(held["signed"]) < datetime.fromisoformat(str(manifest["made"])):
        wrong.append("It was signed before it was made.")
    return wrong
