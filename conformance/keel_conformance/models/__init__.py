"""Real models with random weights, built offline: ``build("bert")`` gives a model and inputs to try it on."""

from __future__ import annotations

from . import text, vision
from .model_case import SCALES, InDouble, ModelCase
from .vision_ops import allow_torchvision

TEXT = {"bert": text.bert, "gpt2": text.gpt2, "llama": text.llama, "t5": text.t5}
NAMES = (*TEXT, "vit", *vision.TIMM)

__all__ = ["NAMES", "SCALES", "InDouble", "ModelCase", "allow_torchvision", "build", "package"]


def build(
    name: str,
    *,
    scale: str = "line",
    device: str = "cpu",
    seed: int = 0,
    batch: int | None = None,
    length: int | None = None,
) -> ModelCase:
    """The model called ``name`` (one of ``NAMES``), in ``eval`` mode, every dropout rate 0.

    ``scale`` is ``"line"`` (published widths; transformers cut to two layers) or ``"tiny"``. ``batch`` and ``length``
    (tokens; models over images have none) replace the scale's own. The same arguments give the same weights and
    inputs. Raises ValueError for a name or scale there is not.
    """
    if name not in NAMES:
        raise ValueError(f"there is no model {name!r}; there are {', '.join(NAMES)}.")
    if scale not in SCALES:
        raise ValueError(f"there is no scale {scale!r}; there are {', '.join(SCALES)}.")
    if name in TEXT:
        case = TEXT[name](scale, device, seed, batch, length)
    elif name == "vit":
        case = vision.vit(scale, device, seed, batch, length)
    else:
        case = vision.convnet(name, scale, device, seed, batch)
    case.model.eval()
    return case


def package(name: str) -> str:
    """The package that the model's architecture is of."""
    return "timm" if name in vision.TIMM else "transformers"
