"""What becomes one kernel.  Every schedule here was also run, and gave what eager gives."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keel.fuel import Fuel
from keel.plugin import Limits
from keel.schedule.fuse import fuse
from keel.schedule.kernel_launch import KernelLaunch


def wanting(*shape):
    return torch.randn(shape, requires_grad=True)


def launches(schedule):
    return [s for s in schedule.steps if isinstance(s, KernelLaunch)]


def softmax(x):
    return F.softmax(x, -1)


def layer_norm(x, w, b):
    return F.layer_norm(x, (48,), w, b)


def cross_entropy(x, target):
    return F.cross_entropy(x, target)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (softmax, (torch.randn(6, 48),)),
        (layer_norm, (torch.randn(2, 3, 48), torch.randn(48), torch.randn(48))),
        (cross_entropy, (torch.randn(6, 48), torch.tensor([1, 2, -100, 4, 5, 47]))),
    ],
    ids=["softmax", "layer_norm", "cross_entropy"],
)
def test_one_kernel_each(scheduled, text, golden, fn, args, dynamic):
    schedules = scheduled(fn, *args, dynamic=dynamic)
    assert [len(launches(s)) for s in schedules] == [1]
    golden(text(schedules))


@pytest.mark.slow
def test_training_layer_norm(scheduled, text, golden):
    """Forward one kernel; backward one for the input's gradient, and one that adds up columns for the parameters'."""
    schedules = scheduled(layer_norm, wanting(2, 3, 48), wanting(48), wanting(48))
    assert [len(launches(s)) for s in schedules] == [1, 2]
    golden(text(schedules))


def test_heads_are_split_where_they_are_made(scheduled, text, golden):
    def heads(x, w, b):
        y = (x @ w + b).view(2, 5, 3, 8).permute(0, 2, 1, 3)
        return y.contiguous(), F.relu(y).contiguous()

    schedules = scheduled(heads, torch.randn(2, 5, 24), torch.randn(24, 24), torch.randn(24))
    assert [len(launches(s)) for s in schedules] == [1]
    golden(text(schedules))


def test_batch_norm_reads_channels_apart(scheduled, text, golden):
    def batch_norm(x, w, b):
        return F.relu(F.batch_norm(x, None, None, w, b, training=True))

    schedules = scheduled(batch_norm, torch.randn(4, 6, 5, 5), torch.randn(6), torch.randn(6))
    assert [len(launches(s)) for s in schedules] == [1]
    golden(text(schedules))


def test_what_two_kernels_need_is_stored_once(scheduled):
    """The exponential feeds a row fold and a column fold, whose spaces form no chain."""
    (schedule,) = scheduled(lambda x: ((e := x.exp()).sum(0), e.sum(1)), torch.randn(40, 50))
    first, second = launches(schedule)
    assert set(first.writes) & set(second.reads)


def test_a_long_fold_is_split_where_the_machine_is_wide(scheduled, text, golden):
    limits = Limits(parallel=64)
    schedules = scheduled(lambda x: (x * x).sum(), torch.randn(128, 64), limits=limits)
    assert [len(launches(s)) for s in schedules] == [2]
    golden(text(schedules))


def test_fuel_stops_fusion(scheduled):
    (schedule,) = scheduled(lambda x: (x.exp().sum(1), x.sin().sum(1), x.cos().sum(1)), torch.randn(8, 64))
    limits, hint = Limits(), int
    whole = fuse(schedule.tensors, limits, hint)
    nothing = fuse(schedule.tensors, limits, hint, Fuel(0))
    assert len(nothing.steps) > len(whole.steps)


def test_a_group_is_needed_as_a_whole(scheduled):
    """The product needs the group of ``a`` and ``b``, which needs the maximum: so ``c``, which reads the product, does
    not join the maximum, though all that the product itself reads stands before it.
    """

    def fn(x, w, y):
        a = x.exp()
        product = a @ w
        most = y.amax(1, keepdim=True)
        b = a.sin() * most
        c = y.exp() * product
        return b, c

    (schedule,) = scheduled(fn, torch.randn(8, 8), torch.randn(8, 16), torch.randn(8, 16))
    assert len(launches(schedule)) == 3


@pytest.mark.slow
def test_equal_layers_share_kernels(scheduled):
    def layers(x, *weights):
        for w in weights:
            x = F.gelu(F.layer_norm(x, (32,)) @ w) + x
        return x

    (schedule,) = scheduled(layers, torch.randn(4, 32), *(torch.randn(32, 32) for _ in range(5)))
    assert len(schedule.kernels()) < len(launches(schedule))


# -- any program -----------------------------------------------------------------------------------------

UNARY = (
    torch.neg,
    torch.abs,
    torch.tanh,
    F.relu,
    lambda x: x * 0.5 + 1,
    lambda x: x.t().contiguous().t(),
    lambda x: x - x.amax(1, keepdim=True),
    lambda x: x + x.mean(0),
    lambda x: x.view(-1).view(x.shape),
    lambda x: x.cumsum(1),
    lambda x: torch.cat([x[:, 1:], x[:, :1]], 1),
    lambda x: F.pad(x, (1, 0))[:, :-1],
    lambda x: x.flip(0),
    lambda x: x.masked_fill(x > 0.5, 0.25),
    lambda x: x.sum() + x,
)
BINARY = (
    torch.add,
    torch.mul,
    torch.maximum,
    lambda a, b: a + b.sum(1, keepdim=True),
    lambda a, b: a * b.sum(0),
    lambda a, b: torch.where(a > b, a, b),
)


@st.composite
def programs(draw):
    """Steps on a list of matrices; each names its operands by how far back they lie."""
    steps = draw(
        st.lists(
            st.one_of(
                st.tuples(st.sampled_from(UNARY), st.integers(1, 4)),
                st.tuples(st.sampled_from(BINARY), st.integers(1, 4), st.integers(1, 4)),
            ),
            min_size=1,
            max_size=8,
        )
    )
    return steps, draw(st.integers(1, 3)), draw(st.sampled_from([(3, 4), (1, 5), (6, 1), (8, 16)]))


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(programs())
def test_any_schedule_computes_what_eager_does(scheduled, program):
    steps, outputs, shape = program

    def fn(x, y):
        values = [x, y]
        for op, *back in steps:
            values.append(op(*(values[-min(b, len(values))] for b in back)))
        return tuple(values[-outputs:])

    torch.manual_seed(0)
    scheduled(fn, torch.randn(shape), torch.randn(shape))


def test_what_is_cast_for_several_readers_has_memory_and_not_the_cast(scheduled):
    """A wider dtype takes more memory, and says no more."""

    def fn(x, y, z):
        wide = (x.sin() * y + z).float()
        return wide.cumsum(0), wide.cumsum(1)

    args = [torch.randn(40, 30).bfloat16() for _ in range(3)]
    (schedule,) = scheduled(fn, *args, tolerance=1e-5)
    made, *scans = (s.kernel.buffers for s in schedule.steps)
    assert [b.dtype for b in made if b.role == "out"] == [torch.bfloat16]
    assert [b.dtype for scan in scans for b in scan if b.role == "in"] == [torch.bfloat16, torch.bfloat16]
