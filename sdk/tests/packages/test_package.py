"""Packages: a compiled program in one file gives the results that it gave where it was compiled."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

import keel
from keel import Backend, KeelError
from keel.discovery import find
from keel.packages.load_package import Package
from keel.packages.package import Target
from keel.packages.package_file import PackageFile, written
from keel.packages.package_manifest import opened

from ..line import whole

# PyTorch's own exporter uses what PyTorch deprecates.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]
R = torch.randn
CPP = ("cpp",)


class Counts(nn.Module):
    """Writes a buffer and an input, returns views, and has tied and transposed weights."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.out, self.norm = nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(16)
        self.tied = self.linear.weight
        self.turned = nn.Parameter(R(16, 8).t())
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, more: dict[str, Tensor], *, times: int = 3) -> Any:
        self.calls += 1
        more["a"].add_(1)
        y = torch.nn.functional.gelu(self.norm(self.linear(x))) * times
        z = self.out(y) + x @ self.tied.t() @ self.turned.t()
        return {"z": z, "flat": z.view(-1), "n": x.shape[0] * 2, "a": more["a"].t(), "calls": self.calls}


def arguments(n: int) -> tuple[Tensor, dict[str, Tensor]]:
    return R(n, 8), {"a": R(2, 3)}


@pytest.fixture(scope="module")
def program() -> ExportedProgram:
    torch.manual_seed(0)
    shapes = {"x": {0: Dim("n", min=2, max=50)}, "more": {"a": None}}
    return export(Counts().eval(), arguments(4), {"times": 3}, dynamic_shapes={**shapes, "times": None})


@pytest.fixture(scope="module")
def path(program: ExportedProgram, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packages") / "counts.keel"
    keel.package(program, path, backends=CPP)
    return path


def load(path: Path, **more: Any) -> Package:
    return keel.load_package(path, **{"trusted": True, **more})


def same(got: Any, want: Any) -> bool:
    return all(torch.equal(got[k], v) if isinstance(v, Tensor) else got[k] == v for k, v in want.items())


def test_a_package_computes_what_was_compiled(program: ExportedProgram, path: Path) -> None:
    compiled, loaded = keel.compile_exported(program, backends=CPP), load(path)
    program.state_dict["calls"].zero_()
    for n in (4, 7):
        x, more = arguments(n)
        assert same(loaded(x, {"a": more["a"].clone()}, times=3), compiled(x, more, times=3))


def test_results_share_memory_as_in_the_program(path: Path) -> None:
    loaded, (x, more) = load(path), arguments(4)
    result = loaded(x, more, times=3)
    more["a"].zero_()
    result["z"].zero_()
    assert not result["a"].any() and not result["flat"].any() and result["calls"] is loaded.weights["calls"]


def test_arguments_are_checked(path: Path) -> None:
    loaded = load(path)
    for args, why in [
        ((R(60, 8), {"a": R(2, 3)}), "not between 2 and 50"),
        ((R(4, 9), {"a": R(2, 3)}), r"shape is \[4, 9\]"),
        ((R(4, 8).double(), {"a": R(2, 3)}), "float64"),
        ((R(4, 8), {"b": R(2, 3)}), "nested"),
    ]:
        with pytest.raises(KeelError, match=why):
            loaded(*args, times=3)
    with pytest.raises(KeelError, match="exported for 3"):
        loaded(R(4, 8), {"a": R(2, 3)}, times=4)


def test_a_package_is_not_loaded_unless_it_is_trusted(path: Path) -> None:
    with pytest.raises(KeelError, match="not trusted") as raised:
        keel.load_package(path)
    assert raised.value.code == "bad-artifact"


def test_weights_are_mapped_shared_and_replaceable(path: Path, tmp_path: Path) -> None:
    first, second = load(path), load(path, weights={"out.bias": torch.full((8,), 5.0)})
    assert first.weights["tied"] is first.weights["linear.weight"]
    assert first.weights["turned"].stride() == (1, 8)
    x, more = arguments(4)
    before = first(x, {"a": more["a"].clone()}, times=3)["z"]
    bias = first.weights["out.bias"].clone()
    assert torch.allclose(second(x, more, times=3)["z"], before - bias + 5, atol=1e-5)
    first.replace_weights({"out.bias": torch.full((8,), 5.0)})
    assert torch.allclose(first(x, {"a": R(2, 3)}, times=3)["z"], before - bias + 5, atol=1e-5)
    assert torch.equal(load(path).weights["out.bias"], bias)


def test_replaced_weights_must_fit(path: Path) -> None:
    loaded = load(path)
    for name, value, why in [("out.bias", R(9), "not float32"), ("bias", R(8), "no weight of this name")]:
        with pytest.raises(KeelError, match=why):
            loaded.replace_weights({name: value})
        with pytest.raises(KeelError, match=why):
            load(path, weights={name: value})


def test_frozen_weights_cannot_be_replaced(program: ExportedProgram, tmp_path: Path) -> None:
    keel.package(program, tmp_path / "frozen.keel", backends=CPP, freeze=True)
    loaded, (x, more) = load(tmp_path / "frozen.keel"), arguments(4)
    want = program.module()(x, {"a": more["a"].clone()}, times=3)
    torch.testing.assert_close(loaded(x, more, times=3)["z"], want["z"])
    with pytest.raises(KeelError, match="compiled for its value"):
        loaded.replace_weights({"out.bias": R(8)})


def test_packages_share_a_file_of_weights(program: ExportedProgram, tmp_path: Path) -> None:
    paths, weights = [tmp_path / "a.keel", tmp_path / "b.keel"], tmp_path / "weights.keel"
    for at in paths:
        keel.package(program, at, backends=CPP, weights_file=weights)
    size = weights.stat().st_size
    x, more = arguments(4)
    results = [load(at)(x, {"a": more["a"].clone()}, times=3)["z"] for at in paths]
    assert torch.equal(*results) and weights.stat().st_size == size
    weights.unlink()
    with pytest.raises(KeelError, match="There is no file"):
        load(paths[0])
    with pytest.raises(KeelError, match="not in the folder"):
        keel.package(program, paths[0], backends=CPP, weights_file=tmp_path.parent / "weights.keel")


# -- machines ---------------------------------------------------------------------------------------------------------


def variants(path: Path, program: ExportedProgram, *targets: Target) -> Path:
    keel.package(program, path, backends=CPP, targets=targets)
    return path


def test_the_first_variant_that_runs_here_is_loaded(program: ExportedProgram, tmp_path: Path) -> None:
    path = variants(tmp_path / "a.keel", program, "x86-64-v2", {"cpp": "x86-64-v3"})
    loaded, (x, more) = load(path), arguments(4)
    assert loaded.variant == "x86-64-v2" and [v.name for v in loaded.manifest.variants] == [
        "x86-64-v2",
        "cpp=x86-64-v3",
    ]
    want = program.module()(x, {"a": more["a"].clone()}, times=3)
    torch.testing.assert_close(loaded(x, more, times=3)["z"], want["z"])


def elsewhere(backend: Backend) -> Backend:
    """The backend on a machine that lacks what all machine code needs."""

    def load(objects: Any, sources: Any) -> Any:
        raise KeelError("not-here", "The kernels do not run here.", {"cpp": "This processor lacks avx2."})

    target = backend.target
    assert target is not None
    return replace(backend, target=replace(target, load=load))


def test_a_machine_that_lacks_something_is_refused_or_compiles_again(path: Path) -> None:
    backends = [elsewhere(find("cpp"))]
    with pytest.raises(KeelError, match="native: This processor lacks avx2") as raised:
        load(path, backends=backends)
    assert raised.value.code == "bad-artifact" and "recompile=True" in str(raised.value)
    x, more = arguments(4)
    want = load(path)(x, {"a": more["a"].clone()}, times=3)["z"]
    assert torch.equal(load(path, backends=backends, recompile=True)(x, more, times=3)["z"], want)


def test_an_unknown_target_is_an_error(program: ExportedProgram, tmp_path: Path) -> None:
    with pytest.raises(KeelError, match="x86-64-v9"):
        variants(tmp_path / "a.keel", program, "x86-64-v9")
    assert not [*tmp_path.iterdir()]


# -- graph-level backends ---------------------------------------------------------------------------------------------


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sin() @ x.t()


def vendor(compiled: list[str], fingerprint: str = "1") -> Backend:
    """A backend that notes what it compiles, and makes its parts again of a text."""

    def compile(gm: torch.fx.GraphModule) -> Callable[..., Any]:
        compiled.append("compiled")
        return gm.forward

    def deserialize(content: bytes) -> Callable[..., Any]:
        assert content == b"a part"
        return lambda x: (x.sin() @ x.t(),)

    return replace(
        whole("vendor"),
        compile=compile,
        serialize=lambda run: b"a part",
        deserialize=deserialize,
        fingerprint=lambda: fingerprint,
    )


def test_parts_of_a_graph_level_backend_are_kept(tmp_path: Path) -> None:
    compiled: list[str] = []
    path, x = tmp_path / "a.keel", R(3, 4)
    keel.package(export(Model(), (x,)), path, backends=[vendor(compiled)])
    assert torch.equal(load(path, backends=[vendor(compiled)])(x), Model()(x)) and compiled == ["compiled"]


def test_parts_of_another_version_are_refused_or_compiled_again(tmp_path: Path) -> None:
    compiled: list[str] = []
    path, x = tmp_path / "a.keel", R(3, 4)
    keel.package(export(Model(), (x,)), path, backends=[vendor(compiled)])
    newer = [vendor(compiled, "2")]
    with pytest.raises(KeelError, match="not the one that compiled"):
        load(path, backends=newer)
    assert torch.equal(load(path, backends=newer, recompile=True)(x), Model()(x)) and len(compiled) == 2


def test_an_operator_of_a_package_that_is_not_imported_is_named(tmp_path: Path) -> None:
    x, path = R(3), tmp_path / "a.keel"
    with torch.library._scoped_library("acme", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")

        class Twice(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return torch.ops.acme.twice(x)

        keel.package(export(Twice(), (x,)), path, backends=["eager"])
        assert torch.equal(load(path)(x), x * 2)
    with pytest.raises(KeelError, match=r"Import the package that registers"):
        load(path)


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_damaged_package_is_an_error(path: Path, tmp_path: Path) -> None:
    sound, drawn, damaged = path.read_bytes(), random.Random(0), tmp_path / "damaged.keel"
    for _ in range(300):
        content = bytearray(sound)
        for _ in range(drawn.choice((1, 1, 8))):
            content[drawn.randrange(len(content))] = drawn.randrange(256)
        if drawn.random() < 0.2:
            del content[drawn.randrange(len(content)) :]
        if content == sound:
            continue
        damaged.write_bytes(content)
        with pytest.raises(KeelError) as raised:
            load(damaged)
        assert raised.value.code == "bad-file"


def changed(path: Path, member: str, change: Callable[[Any], Any]) -> Path:
    """A copy of a package with a member changed as data, and with right checksums."""
    file, copy = PackageFile.opened(path), path.with_name("changed.keel")
    with written(copy) as writer:
        for name in file.members:
            content = bytes(file.member(name))
            if name == member:
                data = json.loads(content)
                change(data)
                content = json.dumps(data).encode()
            writer.add(name, content)
    return copy


@pytest.mark.parametrize(
    ("member", "change", "why"),
    [
        ("graph.json", lambda data: data["parts"].append({}), r"graph.json.parts\[1\]: It lacks name"),
        ("graph.json", lambda data: data["link"]["LinkProgram"]["results"].append({"Value": {"name": "v"}}), "'v' is"),
        ("graph.json", lambda data: data["link"]["LinkProgram"]["inputs"].pop(), "used before it is defined"),
        ("boundary.json", lambda data: data.pop("end"), "boundary: It lacks end"),
        ("boundary.json", lambda data: data["graph_inputs"].clear(), "boundary.graph_inputs: The graph takes 1"),
        ("package.json", lambda data: data.update(options=[]), "options: It is not a table"),
    ],
)
def test_a_damaged_program_is_refused_before_a_backend_gets_it(
    member: str, change: Callable[[Any], Any], why: str, tmp_path: Path
) -> None:
    def never(content: bytes) -> Any:
        raise AssertionError("A part of a damaged program was loaded.")

    x, path = R(3, 4), tmp_path / "a.keel"
    keel.package(export(Model(), (x,)), path, backends=[vendor([])])
    with pytest.raises(KeelError, match=why) as raised:
        load(changed(path, member, change), backends=[replace(vendor([]), deserialize=never)])
    assert raised.value.code == "bad-file"


def test_machine_code_without_a_description_is_refused(path: Path) -> None:
    damaged = changed(path, "package.json", lambda data: [each[0].pop("kind") for each in _code(data)])
    with pytest.raises(KeelError, match="lacks kind") as raised:
        opened(damaged)
    assert raised.value.code == "bad-file"


def _code(manifest: Any) -> list[Any]:
    return [*manifest["variants"][0]["code"].values()]


def test_a_part_that_has_no_graph_cannot_be_compiled_again(tmp_path: Path) -> None:
    path = tmp_path / "a.keel"
    keel.package(export(Model(), (R(3, 4),)), path, backends=[vendor([])])
    with pytest.raises(KeelError, match=r"parts\.json: It lacks 'p0'"):
        load(changed(path, "parts.json", dict.clear), backends=[vendor([], "2")], recompile=True)


def test_a_certificate_that_does_not_exist_is_an_error(program: ExportedProgram, tmp_path: Path) -> None:
    for missing, code in ((tmp_path / "none.json", "bad-option"), (tmp_path, "bad-file")):
        with pytest.raises(KeelError) as raised:
            keel.package(program, tmp_path / "a.keel", backends=CPP, certificates=[missing])
        assert raised.value.code == code


def test_a_package_of_a_newer_keel_is_refused(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keel.packages.package_manifest.FORMAT", 0)
    with pytest.raises(KeelError, match="Load it with a newer Keel"):
        load(path)


def test_the_manifest_says_what_a_package_is(program: ExportedProgram, tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.json"
    certificate.write_text("{}")
    keel.package(program, tmp_path / "a.keel", backends=CPP, certificates=[certificate])
    file, manifest = opened(tmp_path / "a.keel")
    assert [*manifest.backends] == ["cpp", "eager"] and manifest.torch == torch.__version__
    assert [*manifest.certificates] == ["certificate.json"] and manifest.variants[0].needs
    assert json.loads(bytes(file.member("plan.json")))["parts"]


def test_a_new_process_loads_it(path: Path, program: ExportedProgram, tmp_path: Path) -> None:
    x, more = arguments(5)
    torch.save((x, more["a"]), tmp_path / "in.pt")
    text = (
        "import sys, torch, keel\n"
        f"x, a = torch.load({str(tmp_path / 'in.pt')!r})\n"
        f"loaded = keel.load_package({str(path)!r}, trusted=True)\n"
        f"torch.save(loaded.call_flat([x, a, 3])[:1], {str(tmp_path / 'out.pt')!r})\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True, env=None)
    want = load(path)(x, more, times=3)
    assert any(torch.equal(torch.load(tmp_path / "out.pt")[0], v) for v in want.values() if isinstance(v, Tensor))
