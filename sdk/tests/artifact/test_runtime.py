"""The C++ runtime gives the bits that the compiled program gives in Python, and refuses the rest in a sentence."""

from __future__ import annotations

import platform
import runpy
import shutil
import struct
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

import keel
from keel.packages.package_manifest import opened

from .runtime_library import Model, Refused, same, words

# PyTorch's own exporter uses what PyTorch deprecates.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="The runtime is built by g++, which is not on PATH."),
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
]
R = torch.randn
CPP = ("cpp",)
Case = tuple[Any, tuple[Any, ...], Any, tuple[tuple[Any, ...], ...]]
"""A model, its example, its dynamic shapes, and more arguments to call it with."""


class Views(nn.Module):
    def forward(self, x: Tensor) -> Any:
        y = x.relu()
        return y.t(), x[1:], y, x, (x + 1).unsqueeze(0).expand(3, -1, -1), x.size(0), None


class Counts(nn.Module):
    """Writes a buffer, and returns it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(4))
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        self.n.add_(x.sum(0))
        return self.linear(x) * self.n, self.n


class Writes(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Any:
        x.mul_(2)
        return x + y, x.view(-1)


class Looks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 8)

    def forward(self, i: Tensor) -> Tensor:
        return self.table(i).sum(1)


class Found(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nonzero(x > 0) * 2


class Taken(nn.Module):
    def forward(self, x: Tensor, i: Tensor) -> Any:
        n = i.item()
        torch._check(n > 1)
        torch._check(n < 4)
        return x[:n] * 2, n


class Ordered(nn.Module):
    def forward(self, x: Tensor) -> Any:
        values, places = torch.sort(x, -1)
        top = x.topk(3)
        return values.exp(), places, top.values, top.indices, x.split(2, 1)


class Scaled(nn.Module):
    def forward(self, x: Tensor, n: int, f: float) -> Tensor:
        return x * n + f


class Residual(nn.Module):
    """Convolutions that are packed: with a norm folded in, a tensor added, and an operator behind."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)
        nn.init.uniform_(self.norm.running_var, 0.5, 2)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        return (self.norm(self.conv(x)) + x).relu() + self.out(x).sigmoid()


def attention() -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)).eval()


n, s, some = Dim("n", min=3), Dim("s", min=3), Dim("some", min=3, max=50)
CASES: Mapping[str, Callable[[], Case]] = {
    "views": lambda: (Views(), (R(4, 3),), None, ()),
    "views of symbolic sizes": lambda: (Views(), (R(4, 3),), ({0: n},), ((R(7, 3),),)),
    "a buffer": lambda: (Counts(), (R(3, 4),), None, ((R(3, 4),),)),
    "an argument that is written": lambda: (Writes(), (R(3, 4), R(3, 4)), None, ()),
    "attention": lambda: (attention(), (R(2, 8, 32),), None, ()),
    "attention, symbolic": lambda: (attention(), (R(4, 8, 32),), ({0: n, 1: s},), ((R(3, 5, 32),), (R(6, 9, 32),))),
    "indices": lambda: (Looks(), (torch.randint(10, (4, 3)),), ({0: n},), ((torch.randint(10, (5, 3)),),)),
    "sizes that data tell": lambda: (Found(), (R(4, 5),), None, ((R(4, 5),), (-torch.ones(4, 5),))),
    "a number that data tell": lambda: (Taken(), (R(4, 5), torch.tensor(2)), None, ((R(4, 5), torch.tensor(3)),)),
    "several results": lambda: (Ordered(), (R(4, 6),), None, ()),
    "numbers": lambda: (Scaled(), (R(4, 6), 3, 2.5), None, ()),
    "a symbolic number": lambda: (Scaled(), (R(4, 6), 3, 2.5), (None, Dim.DYNAMIC, None), ((R(4, 6), 7, 2.5),)),
    "packed convolutions": lambda: (Residual().eval(), (R(2, 4, 8, 8),), None, ()),
    "packed, symbolic": lambda: (Residual().eval(), (R(4, 4, 8, 8),), ({0: n},), ((R(5, 4, 8, 8),),)),
    "bfloat16": lambda: (perceptron().bfloat16(), (R(16, 16).bfloat16(),), None, ()),
    "no libraries": lambda: (nn.Softmax(-1), (R(4, 9),), ({0: n},), ((R(6, 9),),)),
}


def copies(values: tuple[Any, ...]) -> list[Any]:
    return [v.clone() if isinstance(v, Tensor) else v for v in values]


def packaged(path: Path, case: Case, **more: Any) -> keel.packages.load_package.Package:
    """Writes a package of a case, and loads it in Python."""
    model, example, shapes, _ = case
    keel.package(export(model, example, dynamic_shapes=shapes), path, **{"backends": CPP, **more})
    return keel.load_package(path, trusted=True)


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_program_in_python(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    path, case = tmp_path / "m.keel", CASES[name]()
    python, model = packaged(path, case), Model(path)
    for values in (case[1], *case[3], case[1]):
        here, there = copies(values), copies(values)
        want = python.call_flat(here)
        got = model(*(there[i] for i in sorted(python._boundary.types)))
        assert len(got) == len(want)
        assert all(map(same, got, want))
        assert all(same(a, b) for a, b in zip(there, here, strict=True) if isinstance(a, Tensor))  # as it is written


class Products(nn.Module):
    """Products that are packed: with a norm folded in, a tensor added, and numbers."""

    def __init__(self, variance: float) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(64, 128), nn.Linear(128, 64), nn.BatchNorm1d(64)
        self.weight = nn.Parameter(R(64, 64))
        nn.init.constant_(self.norm.running_var, variance)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Any:
        return self.norm(self.down(self.up(x).relu())) + x, (x @ self.weight) * 2 + 1


@pytest.mark.parametrize("variance", [2.0, torch.inf])  # nothing that is not finite is folded
def test_packed_products_are_those_of_python(tmp_path: Path, variance: float) -> None:
    torch.manual_seed(0)
    case: Case = (Products(variance).eval(), (R(32, 64),), ({0: n},), ())
    python = packaged(tmp_path / "m.keel", case, options={"mode": "max-autotune-no-cudagraphs"})
    model = Model(tmp_path / "m.keel")
    for rows in (32, 16, 1000, 32):  # weights are packed for the first number of rows
        x = R(rows, 64)
        assert all(map(same, model(x), python.call_flat([x])))


def test_views_lie_in_the_memory_of_what_they_are_views_of(tmp_path: Path) -> None:
    packaged(tmp_path / "m.keel", CASES["views"]())
    x = R(4, 3)
    turned, rest, y, same_x, *_ = Model(tmp_path / "m.keel")(x)
    assert turned.data_ptr() == y.data_ptr()
    assert (same_x.data_ptr(), rest.data_ptr()) == (x.data_ptr(), x[1:].data_ptr())


def test_results_outlive_the_model_and_later_calls(tmp_path: Path) -> None:
    packaged(tmp_path / "m.keel", CASES["no libraries"]())
    model, x = Model(tmp_path / "m.keel"), R(4, 9)
    (first,) = model(x)
    before = first.clone()
    for _ in range(3):
        model(R(4, 9))
    del model
    assert torch.equal(first, before)


def test_inputs_of_other_strides_are_copied(tmp_path: Path) -> None:
    python = packaged(tmp_path / "m.keel", CASES["no libraries"]())
    x = R(9, 4).t()
    assert same(Model(tmp_path / "m.keel")(x)[0], python(x))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (R(2, 9), "The size n is 2, not between 3 and 50."),
        (R(4, 8), "The input input has the size 8 in dimension 1, not 9."),
        (R(4, 9).double(), "The input input is of the dtype float64, not float32."),
        (R(9), "The input input has 1 dimensions, not 2."),
    ],
)
def test_arguments_that_do_not_fit_are_refused(tmp_path: Path, value: Tensor, why: str) -> None:
    packaged(tmp_path / "m.keel", (nn.Softmax(-1), (R(4, 9),), ({0: some},), ()))
    with pytest.raises(Refused) as raised:
        Model(tmp_path / "m.keel")(value)
    assert (raised.value.status, str(raised.value).replace("s77", "n").replace("s31", "n")) == (3, why)


def test_a_wrong_index_is_an_error_and_the_model_goes_on(tmp_path: Path) -> None:
    python = packaged(tmp_path / "m.keel", CASES["indices"]())
    model, right = Model(tmp_path / "m.keel"), torch.randint(10, (4, 3))
    with pytest.raises(Refused, match=r"index 10 is out of bounds for a dimension of size 10\. Valid") as raised:
        model(torch.full((4, 3), 10))
    assert raised.value.status == 4
    assert same(model(right)[0], python(right))


@pytest.mark.parametrize("name", ["attention, symbolic", "packed, symbolic", "indices"])
def test_threads_run_one_model_at_once(tmp_path: Path, name: str) -> None:
    case = CASES[name]()
    python, model = packaged(tmp_path / "m.keel", case), Model(tmp_path / "m.keel")
    calls = [(values, python.call_flat(list(values))) for values in (case[1], *case[3])]
    wrong: list[str] = []

    def run(k: int) -> None:
        for turn in range(20):
            values, want = calls[(k + turn) % len(calls)]
            if not all(map(same, model(*values), want)):
                wrong.append(f"thread {k}, call {turn}")

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("name", ["a buffer", "packed convolutions"])
def test_a_replaced_weight_is_used_and_packed_again(tmp_path: Path, name: str) -> None:
    case = CASES[name]()
    python, model = packaged(tmp_path / "m.keel", case), Model(tmp_path / "m.keel")
    weight = "linear.weight" if name == "a buffer" else "conv.weight"
    model(*copies(case[1]))
    if name == "a buffer":
        python(*case[1])  # both have counted
    value = R(python.weights[weight].shape)
    python.replace_weights({weight: value})
    model.replace(weight, value.transpose(0, 1).contiguous().transpose(0, 1))  # its strides do not count
    assert all(map(same, model(*case[1]), python.call_flat(list(case[1]))))
    with pytest.raises(Refused, match="The model has no weight nobody"):
        model.replace("nobody", value)
    with pytest.raises(Refused, match="is not of the sizes"):
        model.replace(weight, R(2, 2))


def test_a_variant_is_chosen_by_what_the_machine_has(tmp_path: Path) -> None:
    packaged(tmp_path / "m.keel", CASES["no libraries"](), targets=("x86-64-v4", "x86-64-v3", "x86-64-v2"))
    needs = {v.name: [feature for _, feature in v.needs] for v in opened(tmp_path / "m.keel")[1].variants}

    def loaded(features: list[str], **more: Any) -> Model:
        return Model(tmp_path / "m.keel", cpu_features=words(*features), cpu_feature_count=len(features), **more)

    assert [loaded(features).variant for features in needs.values()] == [*needs]
    with pytest.raises(Refused, match=r"cannot run here.*x86-64-v4: this CPU has no avx512\w+") as raised:
        loaded(needs["x86-64-v3"], variant=b"x86-64-v4")
    assert raised.value.status == 2
    with pytest.raises(Refused, match="has no variant sm_90"):
        loaded(needs["x86-64-v3"], variant=b"sm_90")


def test_a_missing_libtorch_is_named_where_one_is_needed(tmp_path: Path) -> None:
    packaged(tmp_path / "a.keel", CASES["attention"]())
    packaged(tmp_path / "b.keel", CASES["no libraries"]())
    with pytest.raises(Refused, match=r"libtorch cannot be opened.*KEEL_LIBTORCH") as raised:
        Model(tmp_path / "a.keel", libtorch=b"/nowhere")
    assert raised.value.status == 2
    Model(tmp_path / "b.keel", libtorch=b"/nowhere")


def test_weights_in_another_file(tmp_path: Path) -> None:
    case = CASES["attention"]()
    python = packaged(tmp_path / "m.keel", case, weights_file=tmp_path / "m.weights")
    assert all(map(same, Model(tmp_path / "m.keel")(*case[1]), python.call_flat(list(case[1]))))
    (tmp_path / "m.weights").unlink()
    with pytest.raises(Refused, match=r"m\.weights cannot be opened"):
        Model(tmp_path / "m.keel")


def test_damaged_weights_are_noticed_unless_they_are_not_checked(tmp_path: Path) -> None:
    weight = torch.arange(1000.0).reshape(100, 10)
    model = nn.Linear(10, 100)
    model.weight.data.copy_(weight)
    path = tmp_path / "m.keel"
    packaged(path, (model, (R(3, 10),), None, ()))
    content = path.read_bytes()
    path.write_bytes(content.replace(struct.pack("<f", 555.0), struct.pack("<f", 556.0)))
    with pytest.raises(Refused, match="is damaged: it does not have its checksum") as raised:
        Model(path)
    assert raised.value.status == 1
    Model(path, check_weights=0)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="The machine code of kept packages is for x86-64.")
def test_packages_of_earlier_versions_are_run() -> None:
    folder = Path(__file__).parents[1] / "packages" / "kept"
    made = runpy.run_path(str(folder / "make.py"))
    for path in folder.glob("*.keel"):
        python, x = keel.load_package(path, trusted=True), made["arguments"](4)
        assert all(map(same, Model(path)(x), python.call_flat([x, 2])))


def test_packages_of_more_than_two_gigabytes_have_another_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 512)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 2)
    path, x = tmp_path / "large.keel", R(3, 4)
    keel.package(export(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), (x,)), path, backends=CPP)
    assert same(Model(path)(x)[0], keel.load_package(path, trusted=True)(x))
