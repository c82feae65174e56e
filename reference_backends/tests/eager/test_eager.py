"""The backend of last resort: everything, everywhere, and only what nobody else takes."""

from __future__ import annotations

import torch

import keel
from keel_eager import backend


def test_it_is_found_by_name() -> None:
    assert keel.testing.find("eager") is backend and backend.last_resort


def test_it_takes_any_call_on_any_device() -> None:
    for device in ("cpu", "meta"):
        t = keel.TensorType.dense(torch.complex64, (4,), device)
        assert keel.testing.refusal(backend, keel.Call(torch.ops.aten.relu.default, (t,), {}, (t,))) is None


def test_it_runs_what_others_leave() -> None:
    x = torch.randn(3, 3)
    some = keel.Backend(
        name="some", device="cpu", compile=lambda gm: gm.forward, supports=keel.Support((keel.Rule(ops=("aten.mm",)),))
    )
    explanation = keel.explain(lambda x: (x @ x).sort()[0].cumsum(0), x, backends=[some])
    assert explanation.taken == {"some": 1, "eager": 2}
    assert explanation.fell_back == {"aten.sort.default": 1, "aten.cumsum.default": 1}


def test_alone_it_is_eager_pytorch() -> None:
    x = torch.randn(4, 5, requires_grad=True)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (5,)).softmax(-1)[:, 1:].std(0)

    found, wanted = keel.compile(fn, backends=["eager"], fullgraph=True)(x), fn(x)
    assert torch.equal(found, wanted)
    assert torch.equal(*(torch.autograd.grad(y.sum(), x)[0] for y in (found, wanted)))
