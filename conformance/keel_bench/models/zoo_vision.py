"""The timm models of PyTorch 2.0's public benchmark list, and some newer ones: their architectures, small, offline.

A model is the side of its images, whether it must be told of it, and what makes it small. Dropout rates are 0.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel_conformance.models.model_case import ModelCase, calibrate, fill_zeros
from keel_conformance.models.vision_ops import allow_torchvision

BATCH, CLASSES = 4, 1000


@dataclass(frozen=True)
class Small:
    """``fixed_side`` says that the model is made for images of that side alone; any other takes sides that are larger
    by a multiple of ``by``, and no others if that is 0. ``cut`` is how many blocks of a row of equal ones are kept,
    where no keyword says how many there are.
    """

    side: int = 64
    fixed_side: bool = False
    cut: int = 0
    sizes: dict[str, Any] = field(default_factory=dict)
    by: int = 16


TWO_DEEP = {"depth": 2, "embed_dim": 192, "num_heads": 3}
ONE_EACH = {"layers": [1, 1, 1, 1]}
TWO_LAST = {"layers": [1, 1, 2, 1]}
PLAIN = Small()

VISION: dict[str, Small] = {
    **dict.fromkeys(
        (
            "cspdarknet53",
            "dm_nfnet_f0",
            "dpn107",
            "ese_vovnet19b_dw",
            "fbnetc_100",
            "fbnetv3_b",
            "gernet_l",
            "ghostnet_100",
            "lcnet_050",
            "mixnet_l",
            "mnasnet_100",
            "mobilenetv2_100",
            "mobilenetv3_large_100",
            "mobilevit_s",
            "nfnet_l0",
            "regnety_002",
            "repvgg_a2",
            "rexnet_100",
            "selecsls42b",
            "spnasnet_100",
            "tf_efficientnet_b0",
            "tf_mixnet_l",
            "tinynet_a",
        ),
        PLAIN,
    ),
    **dict.fromkeys(("dla102", "hrnet_w18"), Small(by=32)),  # they add what they downsampled to what they did not
    **dict.fromkeys(
        ("adv_inception_v3", "gluon_inception_v3", "inception_v3", "pnasnet5large", "xception65"), Small(96)
    ),
    **dict.fromkeys(
        ("botnet26t_256", "coat_lite_mini", "eca_botnext26ts_256", "levit_128", "sebotnet33ts_256", "visformer_small"),
        Small(fixed_side=True),
    ),
    **dict.fromkeys(
        (
            "beit_base_patch16_224",
            "deit_base_distilled_patch16_224",
            "vit_base_patch16_224",
            "vit_base_patch16_siglip_256",
        ),
        Small(fixed_side=True, sizes=TWO_DEEP),
    ),
    **dict.fromkeys(
        ("gmixer_24_224", "gmlp_s16_224", "jx_nest_base", "mixer_b16_224", "resmlp_12_224"),
        Small(fixed_side=True, cut=2),
    ),
    **dict.fromkeys(("res2net50_14w_8s", "res2next50", "resnest101e"), Small(sizes=ONE_EACH)),
    **dict.fromkeys(("res2net101_26w_4s", "swsl_resnext101_32x16d"), Small(sizes=TWO_LAST)),
    "cait_m36_384": Small(fixed_side=True, sizes={"depth": 2, "embed_dim": 192, "num_heads": 4, "depth_token_only": 1}),
    "convit_base": Small(fixed_side=True, sizes={"depth": 4, "local_up_to_layer": 2, "embed_dim": 192, "num_heads": 4}),
    "convmixer_768_32": Small(cut=4),
    "convnext_base": Small(sizes={"depths": (1, 1, 2, 1), "dims": (32, 64, 128, 256)}),
    "convnextv2_nano.fcmae_ft_in22k_in1k": PLAIN,
    "crossvit_9_240": Small(120, fixed_side=True),
    "deit_tiny_patch16_224.fb_in1k": Small(fixed_side=True, sizes={"depth": 2}),
    "eca_halonext26ts": Small(256, by=0),
    "pit_b_224": Small(96, fixed_side=True, cut=1),
    "poolformer_m36": Small(cut=1),
    "swin_base_patch4_window7_224": Small(
        112, fixed_side=True, sizes={"depths": (2, 2), "embed_dim": 32, "num_heads": (1, 2)}
    ),
    "tnt_s_patch16_224": Small(fixed_side=True, sizes={"depth": 2}),
    "twins_pcpvt_base": Small(fixed_side=True, sizes={"depths": [1, 1, 1, 1]}),
    "vit_base_patch14_dinov2.lvd142m": Small(70, fixed_side=True, sizes=TWO_DEEP),
    "volo_d1_224": Small(fixed_side=True, cut=1),
    "xcit_large_24_p8_224": Small(sizes={"depth": 2, "embed_dim": 192, "num_heads": 4}),
}

BEYOND: dict[str, Small] = {"densenet121": PLAIN}
"""Models on no list.  DenseNet is one of the longest to compile: each of its layers reads all that are before it."""


def small(name: str) -> Small:
    """How the model of that name in VISION or BEYOND is made small.  Raises KeyError for any other name."""
    return VISION[name] if name in VISION else BEYOND[name]


def build(name: str, seed: int = 0, batch: int = BATCH, side: int = 0) -> ModelCase:
    """The model of that name in VISION or BEYOND, small, with ``batch`` images, ``side`` (0: its own) pixels a side,
    and classes.
    """
    made = small(name)
    sizes: dict[str, Any] = {"img_size": made.side, **made.sizes} if made.fixed_side else made.sizes
    model = network(name, seed, **sizes)
    if made.cut:
        shorten(model, made.cut)
    generator = torch.Generator().manual_seed(seed + 1)
    pixels = torch.randn(batch, 3, side or made.side, side or made.side, generator=generator)
    return _over_images(name, model, pixels, pixels, generator)


def published(name: str, batch: int, side: int, seed: int = 0) -> ModelCase:
    """timm's model of that name as it is, with ``batch`` images of ``side`` pixels a side, and classes.

    Batch norms are set from the first few images, so that one image and a large batch do not take long.
    """
    generator = torch.Generator().manual_seed(seed + 1)
    pixels = torch.randn(max(batch, BATCH), 3, side, side, generator=generator)
    return _over_images(name, network(name, seed), pixels[:BATCH], pixels[:batch], generator)


def network(name: str, seed: int, **sizes: Any) -> nn.Module:
    """timm's network with random weights, none of which are all zeros; ``sizes`` are keywords of timm. Dropout rates
    are 0.
    """
    allow_torchvision()
    import timm

    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that timm has given up
        model: nn.Module = timm.create_model(name, pretrained=False, drop_rate=0.0, **sizes)
    for m in model.modules():
        if isinstance(m, nn.Dropout):
            m.p = 0.0
        elif type(m).__name__ == "DropPath":
            setattr(m, "drop_prob", 0.0)  # noqa: B010  # of timm, which has no types
    fill_zeros(model, seed)
    return model


def _over_images(
    name: str, model: nn.Module, calibrating: Tensor, pixels: Tensor, generator: torch.Generator
) -> ModelCase:
    labels = torch.randint(0, CLASSES, (len(pixels),), generator=generator)
    calibrate(model, calibrating)
    return ModelCase(name, model.eval(), (pixels,), {}, {}, lambda out: loss_of(out, labels))


def loss_of(out: Any, labels: Tensor) -> Tensor:
    if isinstance(out, list | tuple):  # one head of several
        return torch.stack([loss_of(o, labels) for o in out if o.dim() == 2]).mean()
    return F.cross_entropy(out, labels.to(out.device) % out.shape[-1]) if out.dim() == 2 else out.square().mean()


def shorten(model: nn.Module, most: int) -> None:
    """Keeps ``most`` blocks of every row of blocks that are all alike."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Sequential) and len(child) > most and _alike(child):
                setattr(parent, name, child[:most])


def _alike(blocks: nn.Sequential) -> bool:
    kinds = {type(b).__name__ for b in blocks}
    sizes = {tuple(p.shape for p in b.parameters()) for b in blocks}
    stages = any(word in kind for kind in kinds for word in ("Level", "Stage"))
    named = "SequentialTuple" in type(blocks).__name__
    return len(kinds) == len(sizes) == 1 and not (stages or named or kinds & {"Linear", "Conv2d"})
