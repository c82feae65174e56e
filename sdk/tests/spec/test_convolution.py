"""Convolution: what the clauses say of it, and the overloads that are a convolution by another name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keel.spec import MEMBERS
from keel.spec.ops.convolution import IMAGE
from keel.types import TensorType

from .agreement import agree
from .writing import same_written_out

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def by_definition(
    x: torch.Tensor, w: torch.Tensor, stride: list[int], padding: list[int], dilation: list[int], groups: int
) -> torch.Tensor:
    """Clause 1, element by element, of two dimensions."""
    padded = torch.nn.functional.pad(x, [padding[1], padding[1], padding[0], padding[0]])
    outs, per = w.shape[0] // groups, w.shape[1]
    rows = (padded.shape[2] - dilation[0] * (w.shape[2] - 1) - 1) // stride[0] + 1
    columns = (padded.shape[3] - dilation[1] * (w.shape[3] - 1) - 1) // stride[1] + 1
    out = torch.zeros(x.shape[0], w.shape[0], rows, columns, dtype=x.dtype)
    for c in range(w.shape[0]):
        first = c // outs * per
        for i in range(rows):
            for j in range(columns):
                window = padded[:, first : first + per, i * stride[0] :, j * stride[1] :][
                    :,
                    :,
                    : dilation[0] * (w.shape[2] - 1) + 1 : dilation[0],
                    : dilation[1] * (w.shape[3] - 1) + 1 : dilation[1],
                ]
                out[:, c, i, j] = (window * w[c]).sum((1, 2, 3))
    return out


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [([1, 1], [0, 0], [1, 1], 1), ([2, 1], [1, 2], [1, 2], 1), ([1, 3], [0, 1], [2, 1], 2)],
)
def test_convolution_is_its_definition(stride: list[int], padding: list[int], dilation: list[int], groups: int) -> None:
    x, w = torch.randn(2, 4, 7, 8, dtype=torch.float64), torch.randn(6, 4 // groups, 3, 2, dtype=torch.float64)
    got = aten.convolution(x, w, None, stride, padding, dilation, False, [0, 0], groups)
    torch.testing.assert_close(got, by_definition(x, w, stride, padding, dilation, groups))


def test_transposed_is_the_adjoint() -> None:
    x, w = torch.randn(2, 6, 4, 5, dtype=torch.float64), torch.randn(6, 4, 3, 2, dtype=torch.float64)
    y = aten.convolution(x, w, None, [2, 1], [1, 0], [1, 1], True, [1, 0], 1)
    z = torch.randn_like(y)
    back = aten.convolution(z, w, None, [2, 1], [1, 0], [1, 1], False, [0, 0], 1)
    torch.testing.assert_close((y * z).sum(), (x * back).sum())


def test_results_outside_the_mask_are_none() -> None:
    x, w = torch.randn(1, 2, 4, 4), torch.randn(3, 2, 3, 3)
    out = aten.convolution_backward(
        torch.randn(1, 3, 2, 2), x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False]
    )
    assert [t is None for t in out] == [True, False, True]


def images() -> list[tuple[Any, ...]]:
    w2, w3 = torch.randn(4, 3, 3, 3), torch.randn(4, 3, 3, 3, 2)
    x2, x3 = torch.randn(2, 3, 7, 8), torch.randn(2, 3, 5, 6, 4)
    return [
        (aten.conv_tbc.default, torch.randn(7, 2, 3), torch.randn(3, 3, 4), torch.randn(4), 1),
        (aten.slow_conv_dilated2d.default, x2, w2, [3, 3], torch.randn(4), [1, 2], [1, 1], [2, 1]),
        (aten.slow_conv_dilated2d.default, x2[0], w2, [3, 3]),
        (aten.slow_conv_dilated3d.default, x3, w3, [3, 3, 2], None, [2, 2, 1], [0, 0, 1], [1, 2, 1]),
        (aten._slow_conv2d_forward.default, x2, w2, [3, 3], torch.randn(4), [1, 2], [1, 1]),
        (aten.slow_conv3d_forward.default, x3, w3, [3, 3, 2], None, [2, 2, 1], [0, 0, 1]),
        (
            aten.slow_conv_transpose2d.default,
            torch.randn(2, 4, 5, 5),
            w2,
            [3, 3],
            torch.randn(3),
            [2, 2],
            [1, 1],
            [1, 1],
            [1, 1],
        ),
        (aten.slow_conv_transpose3d.default, torch.randn(2, 4, 5, 5, 4), w3, [3, 3, 2], None, [2, 2, 1]),
    ]


def test_other_names() -> None:
    for op, *args in images():
        agree(op, *args)
    same_written_out(*images()[0])


def test_every_configuration_has_a_gradient_sample() -> None:
    """The samples of the backward are those of the forward, and all of them run."""
    op = MEMBERS["convolution_backward"]
    assert op.samples is not None
    for sample in op.samples(torch.float64):
        out = aten.convolution_backward(*sample.args)
        assert [t is not None for t in out] == list(sample.args[-1])


@pytest.mark.parametrize(("device", "strides"), [("cpu", (60, 1, 15, 3)), ("privateuseone", (60, 20, 5, 1))])
def test_results_of_channels_last_images_are_row_major_on_a_vendor_s_device(
    device: str, strides: tuple[int, ...]
) -> None:
    image = TensorType(torch.float32, (2, 3, 4, 5), (60, 1, 15, 3), torch.device(device))
    weight = TensorType.dense(torch.float32, (3, 3, 1, 1), torch.device(device))
    assert IMAGE.of({"input": image, "weight": weight}, (2, 3, 4, 5)) == strides
