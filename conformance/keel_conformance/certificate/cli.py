"""``keel conform certify`` and ``keel conform verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from keel import documents

from ..cli_options import CORES
from .manifest import CERTIFICATE, certify
from .verify import LEAST, SHARE, verify

Folder = Annotated[Path, typer.Argument(help="The --out folder of a run.")]


def certify_command(
    folder: Folder,
    waived: Annotated[Path | None, typer.Option("--waivers", help="The waivers that the run was judged with.")] = None,
) -> None:
    """Seal a run: hashes of all that its verdicts depend on. Only one that conforms is certified."""
    manifest = certify(folder, waived=waived)
    about, waivers = manifest["run"], manifest["totals"]["waived"] + manifest["totals"]["xfail"]
    limited = f", limited to {', '.join(about['ops'])}" if about["ops"] else ""
    passed = f"{manifest['totals']['pass']} of {about['cases']} cases pass, {waivers} are waived."
    Console().print(
        f"{manifest['subject']} conforms to {about['profile']}, tier {about['tier']}{limited}: {passed}",
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
) -> None:
    """Check a certificate, and run a random sample of its cases again. Exits with 1 if it does not hold."""
    wrong = verify(folder, share=share, least=least, jobs=jobs, backend=backend)
    for sentence in wrong:
        Console().print(documents.printable(sentence), highlight=False, markup=False)
    Console().print("The certificate does not hold." if wrong else "The certificate holds.", highlight=False)
    raise typer.Exit(1 if wrong else 0)
