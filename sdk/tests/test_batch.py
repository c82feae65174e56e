"""Calls of operators, compiled as one graph without Dynamo or autograd."""

from __future__ import annotations

import pytest
import torch

import keel

aten = torch.ops.aten
X, Y = torch.randn(3, 5), torch.randn(5, 3).t()


def only_add(call):
    return None if call.name == "aten.add.Tensor" else f"{call.name} is not for me."


adder = keel.Backend(name="adder", device="cpu", supports=only_add, compile=lambda gm: gm.forward)


def test_each_call_has_its_result_and_its_owner():
    calls = [(aten.add.Tensor, (X, Y), {"alpha": 2}), (aten.max.dim, (X, 1), {}), (aten.cat.default, ([X, Y],), {})]
    batch = keel.testing.compile_calls(calls, backends=[adder, "eager"])
    assert batch.owners == (frozenset({"adder"}), frozenset({"eager"}), frozenset({"eager"}))
    assert batch.refusals[0] == () and "is not for me" in batch.refusals[1][0]
    other = [((X + 1, Y * 2), {"alpha": 2}), ((X * 2, 1), {}), (([-X, Y],), {})]
    for given in ([(args, kwargs) for _, args, kwargs in calls], other):
        found = batch.run(given)
        for (op, *_), (args, kwargs), results in zip(calls, given, found, strict=True):
            want = op(*args, **kwargs)
            for mine, theirs in zip(results, want if isinstance(want, tuple) else (want,), strict=True):
                assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    "asked",
    [
        (aten.sub.Tensor, (X > 0, X), {}),
        (aten.sub.Tensor, (X, X > 0), {}),
        (aten.select.int, (X, 0, 3), {}),
        (aten.as_strided.default, (X, [3, 2], [-1, 1]), {}),
    ],
    ids=["bool minus float", "float minus bool", "no such row", "negative stride"],
)
def test_a_call_that_breaks_a_precondition_is_for_eager_to_refuse(asked):
    """Fake tensors of some PyTorch give each of these a type, and a backend that relies on them would read on."""
    op, args, kwargs = asked
    with pytest.raises((IndexError, RuntimeError)) as eager:
        op(*args, **kwargs)
    with pytest.raises((type(eager.value), keel.KeelError)):
        keel.testing.compile_calls([asked], backends=["cpp", "eager"], strict=True).run([(args, kwargs)])


def test_no_backend_is_asked_for_a_call_that_breaks_a_precondition():
    eager = keel.testing.compile_calls([(aten.sub.Tensor, (X > 0, X), {})], backends=["interp", "eager"])
    assert eager.owners == (frozenset({"eager"}),)
    assert "aten.sub.Tensor has a precondition that this call breaks: " in eager.refusals[0][0]
    with pytest.raises(keel.KeelError, match=r"aten\.sub\.Tensor has a precondition that this call breaks") as error:
        keel.testing.compile_calls([(aten.sub.Tensor, (X > 0, X), {})], backends=["interp"], strict=True)
    assert error.value.code == "no-owner"


def test_a_composite_is_done_in_pieces():
    calls = [(aten._softmax.default, (X, 1, False), {})]
    batch = keel.testing.compile_calls(calls, backends=["interp", adder, "eager"])
    assert "interp" in batch.owners[0]
    assert torch.allclose(batch.run([((X, 1, False), {})])[0][0], X.softmax(1))


def test_sizes_that_only_a_run_tells():
    x = torch.tensor([0.0, 1.0, 2.0])
    batch = keel.testing.compile_calls([(aten.nonzero.default, (x,), {})], backends=["eager"])
    assert batch.run([((x,), {})])[0][0].tolist() == [[1], [2]]
    assert batch.run([((x - 1,), {})])[0][0].tolist() == [[0], [2]]


def test_what_cannot_be_traced_is_said():
    with pytest.raises(keel.KeelError, match=r"aten\.mm\.default cannot be traced") as raised:
        keel.testing.compile_calls([(aten.mm.default, (X, X), {})], backends=["eager"])
    assert raised.value.code == "bad-graph"


def test_arguments_of_other_types_are_refused():
    batch = keel.testing.compile_calls([(aten.neg.default, (X,), {})], backends=["interp", "eager"])
    with pytest.raises(keel.KeelError, match="types of the arguments differ") as raised:
        batch.run([((X.t(),), {})])
    assert raised.value.code == "bad-input"


def test_nothing_is_read_of_nothing_that_is_repeated():
    """What all places of a loop have in common is read once before it, but not where the loop has no steps."""
    nothing = torch.zeros(1).expand(0)
    asked = [
        (aten.ne.Scalar, (nothing, 2), {}),
        (aten.sum.default, (nothing,), {}),
        (aten.add.Tensor, (torch.zeros(1, 3).expand(0, 3), X[:1, :3]), {}),
    ]
    batch = keel.testing.compile_calls(asked, backends=["interp", "eager"], strict=True)
    assert batch.owners == (frozenset({"interp"}),) * 3
    for (op, args, _), (found,) in zip(asked, batch.run([(args, kwargs) for _, args, kwargs in asked]), strict=True):
        assert torch.equal(found, op(*args))


def test_a_size_may_be_told_by_a_multiple_of_it():
    """A part may begin with a tensor of twice the size, and know of nothing else that has it."""
    joins = keel.Backend(
        name="joins",
        device="cpu",
        compile=lambda gm: gm.forward,
        supports=lambda call: None if call.name == "aten.cat.default" else "It only joins.",
    )
    run = keel.compile(lambda x: torch.cat([x, x]) * 2 - 1, backends=[joins, "interp"], dynamic=True)
    for n in (4, 6, 9):
        x = torch.randn(n, 3)
        assert torch.equal(run(x), torch.cat([x, x]) * 2 - 1)
