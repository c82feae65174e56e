"""Files with hashes and signatures: real ones to begin with, and hashes made right again after a mutation.

A file with a wrong hash is refused before the rest of it is read. Its hash can be changed with it.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keel_conformance.certificate import certificate_list, hashes, signing
from keel_conformance.levels.needs import FILE as NEEDS
from keel_conformance.levels.needs import Needs, write_needs

from . import seeds
from .mutate import Mutation, zipped

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

NOW = datetime(2026, 11, 25, tzinfo=UTC)
FEW = 4


@cache
def key() -> Ed25519PrivateKey:
    """A private key that is the same in every process."""
    signing.need_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def keys() -> list[bytes]:
    """A private key and a public one, as ``keel conform key`` writes them."""
    private = key()
    from cryptography.hazmat.primitives import serialization

    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return [private.private_bytes(*form), f"{signing.public_text(private)}\n".encode()]


def signatures() -> list[bytes]:
    """What ``keel conform sign`` writes next to a certificate."""
    with tempfile.TemporaryDirectory(prefix="keel-fuzz-") as folder:
        signing.sign(Path(folder), "8" * 64, _key_in(Path(folder)), now=NOW)
        return [Path(folder, signing.SIGNATURE).read_bytes()]


def registries() -> list[bytes]:
    """What ``keel conform register`` writes of two certificates."""
    first = json.loads(certificates()[0])
    first["totals"]["pass"], first["run"]["cases"] = 2, 2
    first["environment"] |= {"cpu": "x", "system": "Linux", "python": "3.11.7", "compiler": "g++ 13"}
    with tempfile.TemporaryDirectory(prefix="keel-fuzz-") as folder:
        private, file = _key_in(Path(folder)), Path(folder, "registry.jsonl")
        for seal in ("7" * 64, "8" * 64):
            certificate_list.append(file, certificate_list.line_of({**first, "seal": seal}, private, now=NOW))
        return [file.read_bytes()]


def _key_in(folder: Path) -> Path:
    file = folder / "key"
    file.write_bytes(keys()[0])
    file.chmod(0o600)
    return file


def locks() -> list[bytes]:
    """The lock of the operator set, with a few of its members."""
    lock = json.loads((files("keel.spec") / "opset-1.0.json").read_text(encoding="utf-8"))
    members = [*lock["members"].items()]
    few = dict(members[:: len(members) // FEW])
    return [json.dumps(with_digests({**lock, "members": few}), indent=1).encode()]


def certificates() -> list[bytes]:
    """A certificate with the right seal."""
    return [json.dumps(with_seal(json.loads(each)), indent=1).encode() for each in seeds.certificates()]


# -- hashes -----------------------------------------------------------------------------------------------------------


def repaired(mutation: Mutation, repair: Callable[[Any], Any], *, lines: bool = False) -> Mutation:
    """A mutation of JSON, or of ``lines`` of JSON, whose hashes are made right again."""

    def mutated(data: bytes, draw: random.Random) -> bytes:
        changed = mutation(data, draw)
        try:
            return b"\n".join(_repaired(part, repair) for part in (changed.split(b"\n") if lines else [changed]))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return changed

    return mutated


def _repaired(data: bytes, repair: Callable[[Any], Any]) -> bytes:
    return json.dumps(repair(json.loads(data))).encode() if data.strip() else data


def with_seal(manifest: Any) -> Any:
    """A certificate with the seal of its content."""
    return {**manifest, "seal": hashes.of_data({k: v for k, v in manifest.items() if k != "seal"})}


def with_digests(lock: Any) -> Any:
    """A lock with the digests of its members."""
    members = {
        name: {**member, "digest": hashes.of_data({k: v for k, v in member.items() if k != "digest"})}
        for name, member in lock["members"].items()
    }
    return {**lock, "digest": hashes.of_data(members), "members": members}


def with_signature(data: Any) -> Any:
    """A signature or a line of a registry, signed again."""
    body = {k: v for k, v in data.items() if k != "signature"}
    return {**body, "signature": signing.sign_data(body, key())}


# -- runs -------------------------------------------------------------------------------------------------------------


def shards() -> list[bytes]:
    """The logs of the two shards of a run, as an archive."""
    lines = seeds.logs()[0].splitlines(keepends=True)
    heads = [json.dumps({"run": {**seeds.HEAD, "shard": f"{k}/2"}}).encode() + b"\n" for k in (1, 2)]
    return [zipped({f"{k}.jsonl": b"".join([head, *lines[1:]]) for k, head in enumerate(heads, 1)})]


def needs() -> list[bytes]:
    """What a model needs, as it is left in the folder of its run."""
    held = Needs({"mm": {"f32": frozenset({"contiguous", "transposed"})}, "neg": {"i64": frozenset({"offset"})}}, True)
    with tempfile.TemporaryDirectory(prefix="keel-fuzz-") as folder:
        write_needs(Path(folder), held | Needs(outside=frozenset({"acme.op.default"})))
        return [Path(folder, NEEDS).read_bytes()]
