"""Indices out of range: every shape of code that the renderer has names the index, and reads no other memory."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy, embedding

import keel
import keel_cpp

N = 70  # a row of vectors, and a tail


def compiled(fn, dynamic=False):
    torch._dynamo.reset()
    return torch.compile(fn, backend="keel", dynamic=dynamic, options={"backends": ["cpp"]})


def scaled(x, i):
    return x[i] * 2


def rows(x, i):
    return x.gather(1, i) + 1


def folded(x, i):
    return x.gather(1, i).sum(1)


def folded_evenly(x, i):
    return x.gather(1, i[:, :64]).sum(1)


def whole(x, i):
    return x.gather(1, i).sum()


def columns(x, i):
    return x.gather(1, i).sum(0)


def running(x, i):
    return x.gather(1, i).cumsum(0)


def looked_up(x, i):
    return embedding(i, x) * 2


def joined(x, i):
    return torch.cat([x.gather(1, i), x], 1).exp()


FORMS = [scaled, rows, folded, folded_evenly, whole, columns, running, looked_up, joined]
WRAPS = (scaled,)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("fn", FORMS, ids=lambda f: f.__name__)
def test_an_index_out_of_range_is_named(fn, dynamic):
    x = torch.randn(40, N)
    good = torch.randint(0, 40, (40, N))
    run = compiled(fn, dynamic)
    torch.testing.assert_close(run(x, good), fn(x, good), rtol=1e-5, atol=1e-4)
    for wrong in (N, 10**12, -N - 1 if fn in WRAPS else -1, -(2**62)):
        bad = good.clone()
        bad[0, 33] = wrong
        with pytest.raises(keel.loops.BadIndex) as raised:
            run(x, bad)
        error = str(raised.value)
        assert f"index {wrong} is out of bounds for a dimension of size" in error and "test_checks.py" in error
    torch.testing.assert_close(run(x, good), fn(x, good), rtol=1e-5, atol=1e-4)


SCATTER = """kernel k(at: i64[5], x: f32[5], trouble: inout i64[1], out: inout f32[s0]) -> () where s0:
  parallel i0 < 5:
    %0 = load at[i0]
    %1 = load x[i0]
    %2 = check trouble[0]: %0 < s0 wrap
    store add out[(%2 < s0)] %1
"""


@pytest.mark.parametrize(("at", "recorded"), [([0, 1, 1, -1, -3], 0), ([0, 3, 1, 1, 1], 4), ([0, 1, -4, 1, 1], -4)])
def test_a_store_elsewhere_is_recorded(at, recorded):
    kernel = keel.loops.parse(SCATTER)
    (launch,) = keel_cpp.target.build([keel.Source(kernel, keel_cpp.target.render(kernel))])
    trouble, out = torch.zeros(1, dtype=torch.int64), torch.zeros(3 + 2)
    launch(torch.tensor(at), torch.ones(5), trouble, out, 3)
    assert trouble.item() == recorded and out[3:].eq(0).all()
    assert recorded or out.tolist() == [2, 2, 1, 0, 0]


def test_negative_indices_count_from_the_end():
    x, i = torch.randn(9, 4), torch.arange(-9, 9)
    assert torch.equal(compiled(scaled)(x, i), scaled(x, i))


def test_it_is_an_index_error_that_names_its_operator():
    with pytest.raises(
        IndexError, match=r"aten\.embedding\.default: index 5 is out of bounds for a dimension of size 5"
    ):
        compiled(looked_up)(torch.randn(5, 3), torch.tensor([0, 5]))


ONE, FOUR = torch.tensor([7]), torch.full((4,), 7)
LOOK_UPS = {
    "gather": lambda x: torch.gather(x, 0, ONE[None]),
    "index_select": lambda x: torch.index_select(x, 0, ONE),
    "index": lambda x: x[ONE],
    "take": lambda x: torch.take(x, ONE * 10),
    "embedding": lambda x: torch.nn.functional.embedding(ONE, x),
    "index_copy": lambda x: x.index_copy(0, ONE, x[:1]),
    "index_fill": lambda x: x.index_fill(0, ONE, 1.0),
    "index_put": lambda x: x.index_put((ONE,), x[0]),
    "scatter": lambda x: x.scatter(0, ONE[None], x[:1]),
    "nll_loss": lambda x: torch.nn.functional.nll_loss(x, FOUR),
    "multi_margin_loss": lambda x: torch.nn.functional.multi_margin_loss(x, FOUR),
}


@pytest.mark.parametrize("name", LOOK_UPS)
def test_who_expects_eagers_error_gets_it(name):
    """Some operators raise an IndexError and some a RuntimeError."""
    x = torch.randn(4, 3)
    with pytest.raises((IndexError, RuntimeError)) as eager:
        LOOK_UPS[name](x)
    with pytest.raises(eager.type):
        compiled(LOOK_UPS[name])(x)


def test_of_several_the_one_at_fault_is_named():
    def both(x, y, i, j):
        return x[i] + y[j]

    run, i = compiled(both), torch.tensor([0, 2])
    with pytest.raises(keel.loops.BadIndex, match="index 2 is out of bounds for a dimension of size 2"):
        run(torch.randn(3), torch.randn(2), i, i)
    with pytest.raises(keel.loops.BadIndex, match="index 3 is out of bounds for a dimension of size 3"):
        run(torch.randn(3), torch.randn(2), i + 1, i - 1)


def test_a_dimension_without_elements_has_no_index():
    run = compiled(rows)
    assert run(torch.randn(3, 0), torch.empty(3, 0, dtype=torch.int64)).shape == (3, 0)
    with pytest.raises(keel.loops.BadIndex, match="index 0 is out of bounds for a dimension of size 0"):
        run(torch.randn(3, 0), torch.zeros(3, 2, dtype=torch.int64))


def test_what_a_mask_hides_is_no_trouble():
    """A target that the loss leaves out may be anything."""
    x, target = torch.randn(6, 4), torch.tensor([0, -100, 3, -100, 1, 2])
    run = compiled(cross_entropy)
    torch.testing.assert_close(run(x, target), cross_entropy(x, target))
    with pytest.raises(keel.loops.BadIndex, match="index 4 is out of bounds for a dimension of size 4"):
        run(x, target + (target == 3))


def test_an_index_that_its_mask_leaves_out_may_be_anything():
    def chosen(x, mask, i):
        return torch.ops.aten._unsafe_masked_index(x, mask, [i], 7)

    x, i = torch.randn(5), torch.tensor([0, 9, -1, -40])
    run, mask = compiled(chosen), (i < 5) & (i > -5)
    assert torch.equal(run(x, mask, i), chosen(x, mask, i))
    assert compiled(chosen)(x[:0], i > -99, i).tolist() == [7.0] * 4  # as in eager
    with pytest.raises(keel.loops.BadIndex, match="index 9 is out of bounds for a dimension of size 5"):
        run(x, i > -5, i)
