"""How the errors of a result's elements are spread, in units in the last place: a few counts, kept with a verdict."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

EDGES = (0.0, 0.5, 1.0, 2.0, 4.0, 16.0, 256.0, 2.0**12, 2.0**16, 2.0**24)
LABELS = ("0", "½", "1", "2", "4", "16", "256", "4Ki", "64Ki", "16Mi", "more", "class")
"""The largest error in ulps that each count includes. ``class`` counts elements that are NaN or infinite where the
reference is finite, or the other way round.
"""


def spread(ulps: Tensor, wrong_class: Tensor | None = None) -> list[int]:
    """How many elements have an error of at most each edge and more than the one before, then more than all, then of
    the wrong class. ``ulps`` is of any shape, ``wrong_class`` boolean of the same.
    """
    flat = ulps.detach().double().abs().flatten().nan_to_num(0.0, float("inf"), float("inf"))
    other = torch.zeros_like(flat, dtype=torch.bool) if wrong_class is None else wrong_class.flatten()
    places = torch.bucketize(flat[~other], torch.tensor(EDGES, dtype=torch.float64))
    counts: list[int] = torch.bincount(places, minlength=len(EDGES) + 1).tolist()
    return [*counts, int(other.sum())]


def bars(counts: Sequence[int], width: float, height: float) -> list[dict[str, float | str | int]]:
    """Where each count stands in a picture of that size: ``x``, ``y``, ``width``, ``height``, its label. Heights are
    by logarithms, so that one wrong element among thousands is seen.
    """
    most = max([*counts, 1])
    step = width / len(LABELS)
    top = torch.log2(torch.tensor(most + 1.0)).item()
    results: list[dict[str, float | str | int]] = []
    for k, (label, count) in enumerate(zip(LABELS, counts, strict=True)):
        tall = height * torch.log2(torch.tensor(count + 1.0)).item() / top
        results.append(
            {
                "x": round(k * step + 1, 1),
                "y": round(height - tall, 1),
                "width": round(step - 2, 1),
                "height": round(tall, 1),
                "label": label,
                "count": count,
                "middle": round((k + 0.5) * step, 1),
            }
        )
    return results
