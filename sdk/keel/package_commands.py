"""The commands for packages: ``keel package`` writes one, and ``keel inspect`` shows what one is."""

from __future__ import annotations

import json as js
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from keel.documents import Malformed, bad_file
from keel.errors import KeelError, count
from keel.named_models import names_in, program_of
from keel.packages.package import Target
from keel.packages.package import package as write
from keel.packages.package_manifest import Manifest, opened


def package(
    what: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FACTORY|FILE.pt2",
            help="A callable without arguments that returns a module, a tuple of arguments and, if need be, dicts of "
            "other arguments and of dynamic shapes; or a file of torch.export.save.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")],
    backends: Annotated[str, typer.Option(help="Names in order of preference, with commas between.")] = "",
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="A variant for another machine: x86-64-v3, or cpp=x86-64-v3,triton=sm_80; repeatable, the fastest "
            "first. Without it there is one variant, for this machine."
        ),
    ] = None,
    freeze: Annotated[bool, typer.Option(help="Compute with the weights now. They cannot be replaced then.")] = False,
    strict: Annotated[bool, typer.Option(help="Make fallbacks errors.")] = False,
    weights_file: Annotated[
        Path | None, typer.Option(help="Write the weights to this file, which packages can share.")
    ] = None,
    certificate: Annotated[
        list[Path] | None, typer.Option(help="A certificate of keel conform, whose hash is stored; repeatable.")
    ] = None,
) -> None:
    """Compile a model and write it to one file, which Python and C++ programs load."""
    write(
        program_of(what),
        out,
        backends=names_in(backends),
        targets=[*map(_target, target or ())],
        freeze=freeze,
        strict=strict,
        weights_file=weights_file,
        certificates=certificate or (),
    )
    print(f"{out} is a package of {out.stat().st_size:,} bytes. Next: keel inspect {out}")


def _target(text: str) -> Target:
    """The target that an option names."""
    if "=" not in text:
        return text
    pairs = [each.partition("=") for each in text.split(",")]
    if any(not (backend and name) for backend, _, name in pairs):
        raise KeelError("bad-option", f"--target {text!r} is not a target.", do="Write cpp=x86-64-v3,triton=sm_80.")
    return {backend.strip(): name.strip() for backend, _, name in pairs}


def inspect(
    file: Annotated[Path, typer.Argument(help="A package.")],
    json: Annotated[bool, typer.Option("--json", help="Print data instead of text.")] = False,
    check: Annotated[bool, typer.Option(help="Read all of it, and compare the checksums.")] = False,
) -> None:
    """Show what a package is, who made it and what it needs. Nothing in it is run."""
    manifest = inspected(file, check=check)
    if json:
        print(js.dumps(as_data(manifest), indent=1))
        return
    console = Console(highlight=False)
    for name, text in as_rows(manifest):
        console.print(f"[bold]{name:13}[/]{escape(text)}", soft_wrap=True)


def inspected(file: Path, *, check: bool) -> Manifest:
    """The manifest of a package. With ``check`` all of the package is read. Raises KeelError[bad-file]."""
    package, manifest = opened(file)
    if check:
        try:
            for name in package.members:
                package.member(name)
        except Malformed as wrong:
            raise bad_file(file, wrong, what="It is damaged.") from wrong
    return manifest


def as_data(manifest: Manifest) -> dict[str, Any]:
    """The manifest as plain data."""
    variants = [{**vars(v), "needs": [list(need) for need in v.needs], "code": dict(v.code)} for v in manifest.variants]
    return {**vars(manifest), "variants": variants, "weights": [w.as_json() for w in manifest.weights]}


def as_rows(manifest: Manifest) -> list[tuple[str, str]]:
    """The lines about a package: a word and a text each."""
    rows = [
        ("made by", f"Keel {manifest.keel[:12]}, opset {manifest.opset}, PyTorch {manifest.torch}"),
        ("made on", ", ".join(manifest.machine.values())),
        ("backends", ", ".join(manifest.backends)),
        ("weights", _weights(manifest)),
    ]
    for variant in manifest.variants:
        rows.append(("variant", f"{variant.name}: {_code(variant.code)}, {_needs(variant.needs)}"))
        runs = "can run it" if variant.program else f"cannot run it. {variant.why_no_program}"
        rows.append(("", f"The C++ runtime {runs}."[: None if variant.program else -1]))
    rows += [("certificate", f"{name} {mark}") for name, mark in manifest.certificates.items()]
    return rows


def _weights(manifest: Manifest) -> str:
    """How many weights there are, and of which size."""
    sizes = {weight.tensor: weight.bytes for weight in manifest.weights}
    dtypes = Counter(weight.dtype for weight in manifest.weights)
    fixed = sum(not weight.replaceable for weight in manifest.weights)
    parts = [f"{count(len(manifest.weights), 'tensor')} of {sum(sizes.values()):,} bytes", *dtypes]
    parts += [f"{fixed} cannot be replaced"] if fixed else []
    parts += [f"in {manifest.weights_file}"] if manifest.weights_file else []
    return ", ".join(parts)


def _code(code: Mapping[str, Any]) -> str:
    """How much machine code a variant has."""
    kinds = Counter(each["kind"] for objects in code.values() for each in objects)
    return ", ".join(count(number, f"{kind} object") for kind, number in kinds.items()) or "no machine code"


def _needs(needs: Sequence[tuple[str, str]]) -> str:
    """What a variant needs of the machine."""
    return f"needs {' '.join(feature for _, feature in needs)}" if needs else "needs nothing of the machine"
