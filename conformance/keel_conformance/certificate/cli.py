"""``keel conform certify`` and ``keel conform verify``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from keel import KeelError, documents

from ..cli_options import CORES
from ..levels.standing import highest
from . import certificate_list, signing
from .manifest import CERTIFICATE, certify
from .verify import LEAST, SHARE, facts, form, read, verify

Folder = Annotated[Path, typer.Argument(help="The --out folder of a run.")]


Key = Annotated[Path | None, typer.Option("--key", help="A private key: the certificate is signed with it.")]


def certify_command(
    folder: Folder,
    key: Key = None,
    waived: Annotated[Path | None, typer.Option("--waivers", help="The waivers that the run was judged with.")] = None,
) -> None:
    """Seal a run: hashes of all that its verdicts depend on. Only one that conforms is certified."""
    manifest = certify(folder, waived=waived)
    about, waivers = manifest["run"], manifest["totals"]["waived"] + manifest["totals"]["xfail"]
    limited = f", limited to {', '.join(about['ops'])}" if about["ops"] else ""
    passed = f"{manifest['totals']['pass']} of {about['cases']} cases pass, {waivers} are waived."
    reached = highest(one["level"] for one in manifest["levels"] if one["state"] == "conforms")
    what = (
        f"conforms to {' and '.join(reached)}" if reached else f"is right in all that it claims of {about['profile']}"
    )
    Console().print(
        f"{manifest['subject']} {what}, tier {about['tier']}{limited}: {passed}",
        highlight=False,
        markup=False,
    )
    for waiver in manifest["waived"]:
        text = documents.printable(
            f"Waived: {len(waiver['cases'])} cases of {waiver['case']}, until "
            f"{waiver['expires']}: {waiver['reason']} ({waiver['url']}, {waiver['owner']})"
        )
        Console().print(text, highlight=False, markup=False)
    Console().print(f"{folder / CERTIFICATE}, seal {manifest['seal'][:16]}", highlight=False, markup=False)
    if key is not None:
        _signed(folder, manifest, key)


def _signed(folder: Path, manifest: Mapping[str, Any], key: Path) -> None:
    public = signing.sign(folder, str(manifest["seal"]), key)
    Console().print(f"{folder / signing.SIGNATURE}, signed by the key {public}", highlight=False, markup=False)


def key_command(file: Annotated[Path, typer.Argument(help="The file of the private key; FILE.pub is public.")]) -> None:
    """Make a key to sign certificates with. Only you can read its file. Publish the public key, and keep the other."""
    public = signing.make_key(file)
    text = f"{file} is the private key. Its public key is {public}, in {file}.pub."
    Console().print(text, highlight=False, markup=False)


def sign_command(
    folder: Folder, key: Annotated[Path, typer.Option("--key", help="The private key to sign with.")]
) -> None:
    """Sign the certificate of a run: its seal, the time and the public key."""
    _signed(folder, _certificate(folder), key)


def register_command(
    folder: Folder,
    registry_file: Annotated[Path, typer.Option("--registry", help="The file of JSON lines to add a line to.")],
    key: Annotated[Path, typer.Option("--key", help="The private key to sign the line with.")],
) -> None:
    """Add the line of a certificate to a registry, which a site can show."""
    line = certificate_list.line_of(_certificate(folder), key)
    certificate_list.append(registry_file, line)
    rates = line["rates"]
    text = f"{line['backend']}: {rates.get('pass', 0)} of {rates['judged']} judged cases pass, of {rates['planned']}."
    Console().print(f"{text} The line is in {registry_file}.", highlight=False, markup=False)


def registry_command(file: Annotated[Path, typer.Argument(help="A file of JSON lines.")]) -> None:
    """Check each line of a registry: its form, its counts and its signature. Exits with 1 if one is wrong."""
    wrong = certificate_list.check(file)
    for sentence in wrong:
        Console().print(sentence, highlight=False, markup=False)
    Console().print("Some lines are wrong." if wrong else "Every line is right.", highlight=False)
    raise typer.Exit(1 if wrong else 0)


def _certificate(folder: Path) -> dict[str, Any]:
    """The certificate in a folder. Raises KeelError[bad-file] if it is not one, or was changed."""
    if wrong := form(folder / CERTIFICATE):
        raise KeelError("bad-file", f"{folder / CERTIFICATE} is not a certificate.", {"certificate": " ".join(wrong)})
    result: dict[str, Any] = read(folder / CERTIFICATE)
    return result


def verify_command(
    folder: Folder,
    share: Annotated[float, typer.Option(min=0.0, max=1.0, help="Fraction of the cases to run again.")] = SHARE,
    least: Annotated[int, typer.Option(min=0, help="Smallest number of cases to run again.")] = LEAST,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time that run cases.")] = CORES,
    backend: Annotated[
        str,
        typer.Option(
            help="The one that the certificate has to be of; a module:attribute has to be said, because it is imported."
        ),
    ] = "",
    key: Annotated[
        str, typer.Option("--key", help="The public key, or its file, of the one who must have signed the certificate.")
    ] = "",
) -> None:
    """Check a certificate, and run a random sample of its cases again. Exits with 1 if it does not hold."""
    trusted = signing.public_key(key) if key else ""
    wrong = verify(folder, share=share, least=least, jobs=jobs, backend=backend, key=trusted)
    for sentence in wrong:
        Console().print(documents.printable(sentence), highlight=False, markup=False)
    for sentence in () if wrong else facts(folder):
        Console().print(documents.printable(sentence), highlight=False, markup=False)
    Console().print("The certificate does not hold." if wrong else "The certificate holds.", highlight=False)
    raise typer.Exit(1 if wrong else 0)


COMMANDS: Mapping[str, Callable[..., None]] = {
    "certify": certify_command,
    "verify": verify_command,
    "key": key_command,
    "sign": sign_command,
    "register": register_command,
    "registry": registry_command,
}
"""The commands of this room, by their names under ``keel conform``."""
