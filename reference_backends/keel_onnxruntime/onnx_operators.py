"""The calls that the backend takes, and those that it refuses by name. Each room has the rows of its operators."""

from __future__ import annotations

from keel import Support
from keel_onnxruntime import (
    contraction_rows,
    creation_rows,
    elementwise_rows,
    indexing_rows,
    quantized_rows,
    reduction_rows,
    shape_rows,
    window_rows,
)
from keel_onnxruntime.refused import refusals
from keel_onnxruntime.rows import emitters

MOVES = (indexing_rows, shape_rows, creation_rows)
ROOMS = (elementwise_rows, reduction_rows, contraction_rows, window_rows, quantized_rows, *MOVES)
ROWS = tuple(row for room in ROOMS for row in room.rows())
EMITTERS = emitters(ROWS)
SUPPORT = Support((*(row.rule for row in ROWS), *refusals()))
