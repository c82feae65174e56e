"""What the operator set leaves out runs eagerly beside what is compiled, or is refused: by name, with the user's
line.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # which registers quantized_decomposed
from torch import nn

import keel
from keel import KeelError, KeelWarning, closure, universe
from keel.types import DTYPE_NAMES

from ..line import Seen

BACKENDS = ("interp", "cpp", "eager")


def halved(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.complex32)


def quantized(x: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize()


def exponents(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float8_e8m0fnu)


PROGRAMS = [
    (halved, "of dtype complex32", "return x.to(torch.complex32)"),
    pytest.param(
        quantized,
        "a call of aten.quantize_per_tensor.default",
        "return torch.quantize_per_tensor",
        marks=pytest.mark.skipif(torch.__version__ < "2.13", reason="Dynamo ends a graph there"),
    ),
    (exponents, "of dtype float8_e8m0fnu", "return x.to(torch.float8_e8m0fnu)"),
]
UNSUPPORTED = pytest.mark.filterwarnings(
    "ignore:ComplexHalf support is experimental", "ignore:torch.quantize_per_tensor"
)


@pytest.mark.slow
@UNSUPPORTED
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("program", "named", "line"), PROGRAMS)
def test_beside_every_backend_it_runs_eagerly_with_a_sentence(
    program: Callable[..., Any], named: str, line: str, backend: str
) -> None:
    torch.compiler.reset()
    x = torch.ones(3)
    with pytest.warns(KeelWarning, match=rf"(?s)in eager PyTorch: .*is {named}, and opset 1.0 leaves out") as heard:
        got = keel.compile(program, backends=[backend])(x)
    [said] = [str(w.message) for w in heard if isinstance(w.message, KeelWarning)]
    assert "test_opset_check.py" in said and line in said
    want = program(x)
    assert got.dtype == want.dtype and torch.equal(got.to(torch.complex64), want.to(torch.complex64))


@UNSUPPORTED
@pytest.mark.parametrize(("program", "named", "line"), PROGRAMS)
def test_under_strict_it_is_refused(program: Callable[..., Any], named: str, line: str) -> None:
    torch.compiler.reset()
    with pytest.raises(KeelError) as raised:
        keel.compile(program, backends=["interp"], strict=True)(torch.ones(3))
    error = raised.value
    assert error.code == "out-of-opset" and f"is {named}, and opset 1.0 leaves out" in error.what
    assert error.where is not None and "test_opset_check.py" in error.where and line in error.where
    assert error.do and error.reasons and error.reasons["because"]


class Looked(nn.Module):
    """Rows of a table whose gradient is sparse, and a layer behind."""

    def __init__(self, *, bags: bool) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(5, 3, mode="sum", sparse=True) if bags else nn.Embedding(5, 3, sparse=True)
        self.layer = nn.Linear(3, 2)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(self.table(rows).sin())
        return out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("backends", [["eager"], ["interp", "eager"]], ids="-".join)
@pytest.mark.parametrize("bags", [False, True], ids=["rows", "bags"])
def test_a_sparse_gradient_is_eagers_and_its_optimizer_steps(bags: bool, backends: list[str]) -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    model, rows = Looked(bags=bags), torch.tensor([[1, 2], [2, 4]])
    twin = copy.deepcopy(model)
    compiled = keel.compile(model, backends=backends)
    for run, trained in ((compiled, model), (twin, twin)):
        optimizer = torch.optim.SGD(trained.parameters(), 0.1)
        for i in range(2):
            optimizer.zero_grad()
            loss = run(rows).square().sum()
            if run is compiled and i == 0:
                with pytest.warns(KeelWarning, match="(?s)in eager PyTorch: .*leaves out sparse layouts"):
                    loss.backward()
            else:
                loss.backward()
            assert trained.table.weight.grad.is_sparse
            optimizer.step()
    torch.testing.assert_close(model.table.weight.grad.to_dense(), twin.table.weight.grad.to_dense())
    torch.testing.assert_close(dict(model.state_dict()), dict(twin.state_dict()))


@UNSUPPORTED
@pytest.mark.skipif(torch.__version__ < "2.13", reason="Dynamo ends a graph there")
def test_what_is_made_of_a_quantized_tensor_is_one_until_it_says_otherwise() -> None:
    def program(x: torch.Tensor) -> Any:
        q = torch.quantize_per_tensor(x * 2, 0.1, 0, torch.qint8)
        return q.clone().view(2, 2).dequantize().sin(), x + 1

    torch.compiler.reset()
    seen = Seen()
    backend = keel.Backend(name="seen", device="*", supports=lambda call: None, compile=seen.compile)
    x = torch.randn(4)
    with pytest.warns(KeelWarning, match="4 calls of a compiled graph run in eager PyTorch"):
        got = keel.compile(program, backends=[backend], fullgraph=True)(x)
    torch.testing.assert_close(got, program(x))
    assert "aten.sin.default" in seen.operators and not any("quantize" in name for name in seen.operators)


TELLS = torch.__version__ >= "2.14"
"""Whether fake tensors have oneDNN's layout."""


@pytest.mark.skipif(not TELLS, reason="PyTorch's fake tensors say that it is strided.")
def test_an_input_of_onednns_layout_runs_eagerly_where_its_fake_tells() -> None:
    torch.compiler.reset()
    x = torch.randn(3, 3)
    with pytest.warns(KeelWarning, match="(?s)in eager PyTorch: .* is of layout _mkldnn"):
        got = keel.compile(lambda x: x.relu(), backends=["eager"])(x.to_mkldnn())
    torch.testing.assert_close(got.to_dense(), x.relu())


@pytest.mark.skipif(TELLS, reason="PyTorch's fake tensors tell.")
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_input_of_onednns_layout_is_refused_though_its_fake_is_strided(backend: str) -> None:
    torch.compiler.reset()
    with pytest.raises(KeelError, match=r"\[out-of-opset\]: The input .* is of layout _mkldnn(.|\n)*x.relu\(\)"):
        keel.compile(lambda x: x.relu(), backends=[backend])(torch.ones(3, 3).to_mkldnn())


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_a_sparse_tensor_is_refused_where_dynamo_does_not_stand_before(layout: str) -> None:
    def product(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sparse = x.to_sparse() if layout == "sparse_coo" else x.to_sparse_csr()
        return (torch.mm(sparse, x),)

    with pytest.raises(KeelError, match=rf"out-of-opset.*of layout {layout}, and opset 1.0 leaves out sparse layouts"):
        universe.trace(product, [torch.eye(3)], closure.watching())(torch.eye(3))


def test_sparse_code_runs_beside_what_is_compiled() -> None:
    torch.compiler.reset()
    x = torch.randn(4, 4)
    got = keel.compile(lambda x: (x.sin().to_sparse() * 2).to_dense() + 1)(x)
    torch.testing.assert_close(got, x.sin() * 2 + 1)


def test_a_jagged_nested_tensor_is_taken_apart_and_compiles() -> None:
    torch.compiler.reset()
    rows = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged)
    got = keel.compile(lambda n: torch.nested.to_padded_tensor((n * 2).sin(), 0.0), backends=["cpp"])(rows)
    torch.testing.assert_close(got, torch.nested.to_padded_tensor((rows * 2).sin(), 0.0))


def test_what_nobody_takes_says_why_it_is_left_out() -> None:
    ends: list[closure.Ending] = []

    def watch(captured: Any) -> closure.Ending:
        ends.append(closure.ending(captured))
        return ends[-1]

    def choose(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.ops.quantized_decomposed.choose_qparams_per_token(x, torch.int8))

    universe.trace(choose, [torch.ones(2, 3)], closure.watching(watch))
    [(call, why)] = ends[0].outside
    assert call.name == "quantized_decomposed.choose_qparams_per_token.default"
    assert "It is left out of the opset (operators whose fake kernels give wrong types): A program" in why


def test_every_layout_and_dtype_of_this_pytorch_has_a_type_or_is_left_out() -> None:
    from keel.spec.excluded import EXCLUSIONS

    kinds = {v for v in vars(torch).values() if isinstance(v, torch.layout | torch.dtype)}
    out = {*(d for e in EXCLUSIONS for d in e.dtypes), *(v for e in EXCLUSIONS for v in e.layouts)}
    assert kinds == out | set(DTYPE_NAMES) | {torch.strided}
    assert out.isdisjoint(DTYPE_NAMES)
