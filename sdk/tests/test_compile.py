"""The whole line on small functions: values, gradients, mutation, aliases, sizes, options."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import keel
from keel import Backend, KeelError, KeelWarning, Rule, Support
from keel.settings import read_settings

from .line import LITTLE, Seen, takes, whole

R = torch.randn
BACKENDS = {"whole": [whole()], "little": [takes(*LITTLE, name="little"), whole("rest", last_resort=True)]}


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)


@pytest.fixture(params=BACKENDS)
def backends(request: pytest.FixtureRequest) -> list[Backend]:
    return BACKENDS[request.param]


# -- inputs that are written to, returned, viewed ---------------------------------------------------------


def writes_an_input(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


def writes_a_view_of_an_input(x: Tensor) -> Tensor:
    x[0].mul_(3)
    return x.sum()


def returns_an_input_twice(x: Tensor) -> Any:
    return x, x


def returns_views_of_an_input(x: Tensor) -> Any:
    return x.view(-1), x[1:]


def returns_a_value_and_its_view(x: Tensor) -> Any:
    y = x + 1
    return y, y, y.view(-1)


def returns_none_and_numbers(x: Tensor) -> Any:
    return x * 2, None, 3


def writes_into_a_cache(cache: Tensor, new: Tensor) -> Tensor:
    cache[:, 2:3] = new
    return cache.sum(-1)


def puts_rows(cache: Tensor, at: Tensor, rows: Tensor) -> Tensor:
    cache.index_put_((at,), rows)
    return cache * 1


def copies_into_an_input(x: Tensor, y: Tensor) -> None:
    x.copy_(y.t())


def turns_gradients_off(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = x * 2
    return y + x


def ignores_an_input(x: Tensor, y: Tensor) -> Tensor:
    return x * 2


def transposes_an_input_in_place(x: Tensor) -> Tensor:
    x.t_()
    return x + 1


def adds_a_constant(x: Tensor) -> Tensor:
    return x + torch.tensor([1.0, 2.0, 3.0, 4.0])


def returns_equal_new_tensors(x: Tensor) -> Any:
    return torch.zeros(3, 4), torch.zeros(3, 4), x + 0, x + 0


def has_nothing_to_do(x: Tensor) -> Any:
    return x[0:0].sum(), x[0:0]


def takes_a_number(x: Tensor, n: int) -> Any:
    return x * n, n + 1


def normalizes(x: Tensor, w: Tensor) -> Tensor:
    return F.gelu(F.layer_norm(x @ w, (5,))).softmax(-1)


PROGRAMS: list[tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = [
    (writes_an_input, lambda: (R(3, 4),)),
    (writes_a_view_of_an_input, lambda: (R(3, 4),)),
    (returns_an_input_twice, lambda: (R(3, 4),)),
    (returns_views_of_an_input, lambda: (R(3, 4),)),
    (returns_a_value_and_its_view, lambda: (R(3, 4),)),
    (returns_none_and_numbers, lambda: (R(3, 4),)),
    (writes_into_a_cache, lambda: (R(2, 5, 3), R(2, 1, 3))),
    (puts_rows, lambda: (R(5, 3), torch.tensor([1, 3]), R(2, 3))),
    (copies_into_an_input, lambda: (R(3, 4), R(4, 3))),
    (turns_gradients_off, lambda: (R(3, 4),)),
    (ignores_an_input, lambda: (R(3, 4), R(2))),
    (transposes_an_input_in_place, lambda: (R(3, 4),)),
    (adds_a_constant, lambda: (R(3, 4),)),
    (returns_equal_new_tensors, lambda: (R(3, 4),)),
    (has_nothing_to_do, lambda: (R(3, 4),)),
    (takes_a_number, lambda: (R(3, 4), 5)),
    (normalizes, lambda: (R(3, 4), R(4, 5))),
]


def memory(results: Any, inputs: list[Any]) -> list[int]:
    """For each tensor that is seen, the first one that lies in the same memory."""
    found = results if isinstance(results, tuple) else (results,)
    ids = [t.untyped_storage().data_ptr() or id(t) for t in (*found, *inputs) if isinstance(t, Tensor)]
    return [ids.index(i) for i in ids]


def backward(results: Any) -> None:
    found = results if isinstance(results, tuple) else (results,)
    total = sum(t.sum() for t in found if isinstance(t, Tensor) and t.requires_grad)
    if isinstance(total, Tensor):
        total.backward()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo looks at every input's
@pytest.mark.parametrize("trained", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(("program", "make"), PROGRAMS, ids=[p.__name__ for p, _ in PROGRAMS])
def test_results_writes_aliases_and_gradients_are_eagers(
    program: Callable[..., Any], make: Callable[..., Any], trained: bool, backends: list[Backend]
) -> None:
    leaves = [a.requires_grad_(trained) if isinstance(a, Tensor) and a.is_floating_point() else a for a in make()]
    twins = [a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in leaves]
    # Leaves that require gradients cannot be written to.
    given, wanted = (
        [a.clone() if trained and isinstance(a, Tensor) and a.requires_grad else a for a in side]
        for side in (leaves, twins)
    )
    want = program(*wanted)
    got = keel.compile(program, backends=backends)(*given)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(given, wanted, check_stride=True)
    assert memory(got, given) == memory(want, wanted)
    backward(got)
    backward(want)
    for leaf, twin in zip(leaves, twins, strict=True):
        if isinstance(leaf, Tensor):
            torch.testing.assert_close(leaf.grad, twin.grad)


# -- training ------------------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.silu(self.norm(self.conv(x))).mean((2, 3)))


@pytest.mark.slow
def test_a_training_step_moves_parameters_and_running_statistics_as_eager_does(backends: list[Backend]) -> None:
    net = Net()
    twin = copy.deepcopy(net)
    compiled = keel.compile(net, backends=backends)
    for model in (compiled, twin):
        step = torch.optim.SGD(model.parameters(), 0.1)
        torch.manual_seed(1)
        for _ in range(3):
            step.zero_grad()
            model(R(4, 3, 6, 6)).square().sum().backward()
            step.step()
    torch.testing.assert_close(dict(net.state_dict()), dict(twin.state_dict()), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_frozen_parameter_gets_no_gradient(backends: list[Backend]) -> None:
    net = Net().eval()
    net.conv.weight.requires_grad_(False)
    x = R(2, 3, 6, 6)
    keel.compile(net, backends=backends)(x).sum().backward()
    assert net.conv.weight.grad is None and net.out.weight.grad is not None


def test_backward_may_be_run_twice() -> None:
    y = R(3, requires_grad=True)
    loss = keel.compile(lambda y: (y**3).sum(), backends=[whole()])(y)
    loss.backward(retain_graph=True)
    loss.backward()
    torch.testing.assert_close(y.grad, 6 * y.detach() ** 2)


def test_a_gradient_of_a_gradient_is_refused() -> None:
    y = R(3, requires_grad=True)
    loss = keel.compile(lambda y: (y**3).sum(), backends=[whole()])(y)
    (slope,) = torch.autograd.grad(loss, y, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        slope.sum().backward()


@pytest.mark.slow
@pytest.mark.parametrize(
    "surrounding",
    [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu")],
    ids=["no_grad", "inference_mode", "autocast"],
)
def test_what_surrounds_a_call_has_its_effect(surrounding: Callable[[], Any], backends: list[Backend]) -> None:
    w = R(4, 5, requires_grad=True)
    x = R(3, 4)
    with surrounding():
        want = normalizes(x, w)
        got = keel.compile(normalizes, backends=backends)(x, w)
    assert got.requires_grad == want.requires_grad and got.dtype == want.dtype
    torch.testing.assert_close(got, want)
    if got.requires_grad:
        grads = [torch.autograd.grad(r.float().square().sum(), w)[0] for r in (got, want)]
        torch.testing.assert_close(*grads, rtol=1e-2, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes_stay(dtype: torch.dtype, backends: list[Backend]) -> None:
    x, w = R(3, 4, dtype=dtype), R(4, 5, dtype=dtype)
    got = keel.compile(normalizes, backends=backends)(x, w)
    assert got.dtype == dtype
    torch.testing.assert_close(got, normalizes(x, w), rtol=2e-2, atol=2e-2)


# -- sizes ---------------------------------------------------------------------------------------------------


def over_tokens(x: Tensor, w: Tensor) -> Tensor:
    y = F.gelu(x @ w)
    return (y - y.mean(-1, keepdim=True)).softmax(-1).view(x.shape[0] * x.shape[1], w.shape[1]) * x.shape[1]


@pytest.mark.slow
@pytest.mark.parametrize("trained", [False, True], ids=["inference", "training"])
def test_twenty_sizes_take_two_compilations_and_size_one_a_third(trained: bool, backends: list[Backend]) -> None:
    compiled = keel.compile(over_tokens, backends=backends)
    w = R(4, 5, requires_grad=trained)
    before = keel.testing.compiled_graphs()
    for n in range(21, 1, -1):
        x = R(n, 3, 4)
        torch.testing.assert_close(compiled(x, w), over_tokens(x, w))
        if trained:
            grads = [torch.autograd.grad(f(x, w).square().sum(), w)[0] for f in (compiled, over_tokens)]
            torch.testing.assert_close(*grads)
    assert keel.testing.compiled_graphs() - before <= 2
    torch.testing.assert_close(compiled(R(1, 3, 4), w).shape, torch.Size([3, 5]))
    assert keel.testing.compiled_graphs() - before <= 3


@pytest.mark.slow
def test_dynamic_compiles_once_for_all_sizes(backends: list[Backend]) -> None:
    compiled = keel.compile(over_tokens, backends=backends, dynamic=True)
    before = keel.testing.compiled_graphs()
    for n in (7, 2, 9):
        x, w = R(n, n + 1, 4), R(4, 5)
        torch.testing.assert_close(compiled(x, w), over_tokens(x, w))
    assert keel.testing.compiled_graphs() - before == 1


@pytest.mark.slow
def test_static_compiles_once_for_each_size() -> None:
    compiled = keel.compile(over_tokens, backends=[whole()], dynamic=False)
    before = keel.testing.compiled_graphs()
    for n in (5, 2, 9):
        compiled(R(n, 3, 4), R(4, 5))
    assert keel.testing.compiled_graphs() - before == 3


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_backend_of_known_sizes_takes_all_sizes_that_the_inputs_tell(dynamic: bool) -> None:
    static = Support((Rule(ops=("*",), static=True),))
    acme = Backend(name="acme", device="cpu", supports=static, compile=lambda gm: gm.forward)
    explanation = keel.explain(over_tokens, R(5, 3, 4), R(4, 5), backends=[acme, whole()], dynamic=dynamic)
    assert [name for name, calls in explanation.taken.items() if calls] == ["acme"]


@pytest.mark.slow
def test_it_refuses_sizes_that_depend_on_data_with_a_sentence() -> None:
    static = Support((Rule(ops=("*",), static=True),))
    acme = Backend(name="acme", device="cpu", supports=static, compile=lambda gm: gm.forward)
    with pytest.raises(KeelError, match="at known sizes only"):
        keel.compile(lambda x: x.nonzero() * 2, backends=[acme], strict=True, fullgraph=True)(R(5))


def test_sizes_can_be_results(backends: list[Backend]) -> None:
    def sizes(x: Tensor) -> Any:
        return x * 2, x.shape[0] * 3 + 1, x.numel()

    compiled = keel.compile(sizes, backends=backends, dynamic=True)
    for n in (4, 7):
        got = compiled(R(n, 5))
        assert got[1:] == (3 * n + 1, 5 * n)


@pytest.mark.slow
def test_numbers_computed_from_sizes_are_arguments(backends: list[Backend]) -> None:
    def scaled(x: Tensor, w: Tensor) -> Tensor:
        return F.silu(x @ w) / (x.shape[0] / 2) ** 0.5 + torch.arange(x.shape[0]).unsqueeze(-1) * (x.shape[0] // 2)

    compiled = keel.compile(scaled, backends=backends, dynamic=True)
    for n in (4, 7):
        x, w = R(n, 5), R(5, 3)
        torch.testing.assert_close(compiled(x, w), scaled(x, w))


@pytest.mark.slow
def test_a_length_that_data_decide_is_a_result(backends: list[Backend]) -> None:
    def picked(x: Tensor) -> Tensor:
        return x[x > 0] * 2

    x = R(5, 6)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch.testing.assert_close(keel.compile(picked, backends=backends, fullgraph=True)(x), picked(x))


@pytest.mark.slow
def test_an_empty_batch_is_computed(backends: list[Backend]) -> None:
    compiled = keel.compile(over_tokens, backends=backends)
    for n in (3, 4, 0):
        assert compiled(R(n, 3, 4), R(4, 5)).shape == (3 * n, 5)


# -- what the user asks for ------------------------------------------------------------------------------------


def product(x: Tensor) -> Tensor:
    return x @ x.t() + 1


def test_torch_compile_finds_keel_by_name() -> None:
    x = R(3, 4)
    seen = Seen()
    acme = takes("mm", name="acme", compile=seen.compile)
    got = torch.compile(product, backend="keel", options={"backends": [acme, whole()]})(x)
    torch.testing.assert_close(got, product(x))
    assert seen.operators == ["aten.mm.default"]


def test_one_function_compiled_twice_with_equal_settings_is_compiled_once() -> None:
    seen = Seen()
    backend = takes("mm", name="acme", compile=seen.compile)
    rest = whole("rest", last_resort=True)
    x = R(3, 4)
    for _ in range(3):
        keel.compile(product, backends=[backend, rest])(x)
    assert len(seen.graphs) == 1
    keel.compile(product, backends=[rest])(x)
    assert len(seen.graphs) == 1


def test_a_break_splits_the_graph_unless_the_full_graph_is_asked_for() -> None:
    def branches(x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x - 1

    x = R(3).abs()
    torch.testing.assert_close(keel.compile(branches, backends=[whole()])(x), x + 1)
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Data-dependent branching"):
        keel.compile(branches, backends=[whole()], fullgraph=True)(x)


def test_reduce_overhead_gives_the_same_results(backends: list[Backend]) -> None:
    x, w = R(3, 4), R(4, 5)
    compiled = keel.compile(normalizes, backends=backends, mode="reduce-overhead")
    for _ in range(3):
        torch.testing.assert_close(compiled(x, w), normalizes(x, w))


@pytest.mark.parametrize(
    "asked",
    [
        {"mode": "fastest"},
        {"options": {"mode": "fastest"}},
        {"options": {"backend": ["eager"]}},
        {"options": {"strict": 3}},
        {"options": {"fuel": -1}},
        {"options": {"fuel": True}},
        {"options": {"backends": "eager"}},
    ],
    ids=["mode", "mode among options", "option", "strict", "fuel", "bool for a number", "backends"],
)
def test_what_cannot_be_asked_for_is_said(asked: dict[str, Any], golden: Callable[..., None]) -> None:
    with pytest.raises(KeelError) as raised:
        torch.compile(product, backend="keel", **asked)(R(3, 4))
    golden(str(raised.value))


# -- what goes wrong -------------------------------------------------------------------------------------------


def failing(gm: Any) -> Any:
    raise ZeroDivisionError("the chip divides by zero")


def here(text: str) -> str:
    """The text without the place of this file and its line numbers."""
    import re

    return re.sub(r"\S*test_compile.py:\d+", "test_compile.py:LINE", text)


def test_a_part_that_its_owner_cannot_compile_goes_to_the_next_who_takes_it(golden: Callable[..., None]) -> None:
    x = R(3, 4)
    backends = [takes("mm", name="acme", compile=failing), takes("add", name="adds"), whole("rest", last_resort=True)]
    with pytest.warns(KeelWarning) as warned:
        got = keel.compile(product, backends=backends)(x)
    torch.testing.assert_close(got, product(x))
    golden(here(str(warned[0].message)))


def test_under_strict_such_a_part_is_an_error(golden: Callable[..., None]) -> None:
    backends = [takes("mm", name="acme", compile=failing), whole("rest", last_resort=True)]
    with pytest.raises(KeelError) as raised:
        keel.compile(product, backends=backends, strict=True)(R(3, 4))
    assert "in failing" in raised.value.__notes__[0]  # the plugin's own traceback
    golden(here(str(raised.value)))


def test_an_error_in_the_backward_graph_reaches_the_user_too() -> None:
    def compile(gm: Any) -> Any:
        return failing(gm) if "tanh_backward" in str(gm.graph) else gm.forward

    x = R(3, requires_grad=True)
    compiled = keel.compile(
        torch.tanh, backends=[takes("tanh", "tanh_backward", name="acme", compile=compile)], strict=True
    )
    with pytest.raises(KeelError, match="acme could not compile"):
        compiled(x).sum().backward()


def test_a_call_without_an_owner_is_an_error(golden: Callable[..., None]) -> None:
    with pytest.raises(KeelError) as raised:
        keel.compile(product, backends=[takes("mm", "t", name="acme"), takes("mul", name="zeta")], strict=True)(R(3, 4))
    golden(here(str(raised.value)))


def test_a_composite_without_an_owner_is_explained_by_its_pieces(golden: Callable[..., None]) -> None:
    with pytest.raises(KeelError) as raised:
        keel.compile(F.gelu, backends=[takes("mul", "add", name="acme")], strict=True)(R(3, 4))
    golden(here(str(raised.value)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: r[0],
        lambda r: (),
        lambda r: (r[0].double(),),
        lambda r: (r[0][:2],),
        lambda r: (r[0].t().contiguous().t(),),
        lambda r: (r[0].to("meta"),),
        lambda r: (3,),
    ],
    ids=["no tuple", "none", "dtype", "shape", "strides", "device", "number"],
)
def test_a_wrong_result_is_caught_on_the_first_call(spoil: Callable[..., Any], golden: Callable[..., None]) -> None:
    def compile(gm: Any) -> Any:
        return lambda *args: spoil(gm.forward(*args))

    with pytest.raises(KeelError) as raised:
        keel.compile(product, backends=[takes("mm", name="acme", compile=compile), whole()])(R(3, 4))
    golden(here(str(raised.value)))


def cannot_say(call: Any) -> str | None:
    raise LookupError("the table is empty")


@pytest.mark.filterwarnings("ignore:KeelError.refuse-raised")
def test_a_backend_that_cannot_say_what_it_takes_takes_nothing() -> None:
    acme = Backend(name="acme", device="*", supports=cannot_say, compile=failing)
    x = R(3, 4)
    torch.testing.assert_close(keel.compile(product, backends=[acme, whole()])(x), product(x))


def test_under_strict_that_is_an_error(golden: Callable[..., None]) -> None:
    acme = Backend(name="acme", device="*", supports=cannot_say, compile=failing)
    with pytest.raises(KeelError) as raised:
        keel.compile(product, backends=[acme, whole()], strict=True)(R(3, 4))
    golden(str(raised.value))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU.")
@pytest.mark.parametrize("trained", [False, True], ids=["inference", "training"])
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # PyTorch records one to start its pool
def test_reduce_overhead_replays_graphs_on_a_gpu(trained: bool) -> None:
    calls: list[int] = []

    def counted(gm: Any) -> Any:
        def run(*args: Any) -> Any:
            calls.append(0)
            return gm.forward(*args)

        return run

    backend = Backend(name="counted", device="cuda", supports=lambda call: None, compile=counted)
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)).cuda()
    twin = copy.deepcopy(model)
    compiled = keel.compile(model, backends=[backend], mode="reduce-overhead")
    for _ in range(8):
        x = R(4, 8, device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        with torch.set_grad_enabled(trained):
            got, want = compiled(x), twin(x)
        torch.testing.assert_close(got, want)
        if trained:
            for m, y in ((model, got), (twin, want)):
                m.zero_grad()
                y.square().sum().backward()
            torch.testing.assert_close(model[0].weight.grad, twin[0].weight.grad)
    # Later calls are replayed: the part itself runs for the first, for warming up, and while it is recorded.
    assert len(calls) <= 4 * (1 + trained)


def test_an_option_that_is_no_text_is_refused_like_any_other() -> None:
    with pytest.raises(KeelError, match="There is no option 3"):
        read_settings(None, {3: 4})
