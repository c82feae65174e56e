"""Models at their published widths and depths, with random weights and no download: those whose speed is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from keel_conformance.models.model_case import ModelCase

from ..training_step import MODES
from . import model_zoo, zoo_text, zoo_vision
from .decode_step import TINY, decode_step
from .detection import resnet_fpn
from .diffusion_unet import diffusion_unet
from .recommenders import deepfm, dlrm
from .whisper_encoder import whisper_encoder

LENGTH = {"cpu": 128, "cuda": 512}
"""Tokens of a row."""
SIDE = 224


@dataclass(frozen=True)
class Published:
    """``build`` makes the model with a batch for a device, ``tiny`` a small one of the same kind, for a test.

    ``throughput`` has the batch, by device, with which a machine is busy.
    """

    build: Callable[[int, str], ModelCase]
    tiny: Callable[[int], ModelCase]
    throughput: Mapping[str, int]
    modes: tuple[str, ...] = MODES


def _images(name: str, side: int = SIDE, like: str = "", cpu: int = 8, cuda: int = 64) -> Published:
    """A network of timm; its tiny one is the zoo's of that name, or the zoo's ``like`` it."""
    return Published(
        lambda batch, device: zoo_vision.published(name, batch, side),
        partial(_small, like or name),
        {"cpu": cpu, "cuda": cuda},
    )


def _tokens(known_as: str, like: str, cuda: int = 16, **sizes: Any) -> Published:
    """A class of transformers with the sizes of its default configuration, but for ``sizes``."""
    return Published(
        lambda batch, device: zoo_text.published(known_as, known_as, sizes, batch, LENGTH[device]),
        partial(_small, like),
        {"cpu": 8, "cuda": cuda},
    )


def _small(like: str, batch: int) -> ModelCase:
    size = model_zoo.sizes(like)[0]
    return model_zoo.build(like, size=model_zoo.Size(batch, size.extent))


def _own(
    build: Callable[[int], ModelCase], tiny: Callable[[int], ModelCase], cpu: int, cuda: int, modes: Any = MODES
) -> Published:
    return Published(lambda batch, device: build(batch), tiny, {"cpu": cpu, "cuda": cuda}, modes)


IMAGES: Mapping[str, Published] = {
    "resnet50": _images("resnet50"),
    "resnext50": _images("resnext50_32x4d", like="resnet50"),
    "mobilenetv2": _images("mobilenetv2_100"),
    "mobilenetv3-large": _images("mobilenetv3_large_100", cuda=128),
    "efficientnet-b0": _images("efficientnet_b0", like="tf_efficientnet_b0"),
    "ghostnet": _images("ghostnet_100", cuda=128),
    "mnasnet": _images("mnasnet_100", cuda=128),
    "regnety-004": _images("regnety_004", like="regnety_002", cuda=128),
    "densenet121": _images("densenet121"),
    "inception-v3": _images("inception_v3", side=299),
    "repvgg-a2": _images("repvgg_a2"),
    "hrnet-w18": _images("hrnet_w18", cuda=32),
    "convnext-tiny": _images("convnext_tiny", like="convnext"),
    "mobilevit-s": _images("mobilevit_s", side=256),
    "vit-base": _images("vit_base_patch16_224"),
    "swin-tiny": _images("swin_tiny_patch4_window7_224", like="swin_base_patch4_window7_224"),
    "mixer-b16": _images("mixer_b16_224"),
    "poolformer-s12": _images("poolformer_s12", like="poolformer_m36"),
}

TEXT: Mapping[str, Published] = {
    "bert-base": _tokens("BertForMaskedLM", "bert"),
    "distilbert": _tokens("DistilBertForMaskedLM", "DistilBertForMaskedLM"),
    "roberta-base": _tokens("RobertaForMaskedLM", "RobertaForCausalLM", max_position_embeddings=514, type_vocab_size=1),
    "albert-base": _tokens(
        "AlbertForMaskedLM",
        "AlbertForMaskedLM",
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
    ),
    "electra-small": _tokens("ElectraForMaskedLM", "ElectraForCausalLM"),
    "mobilebert": _tokens("MobileBertForMaskedLM", "MobileBertForMaskedLM"),
    "gpt2": _tokens("GPT2LMHeadModel", "gpt2", cuda=8),
    "opt-125m": _tokens("OPTForCausalLM", "OPTForCausalLM", cuda=8),
    "pythia-160m": _tokens(
        "GPTNeoXForCausalLM",
        "GPTJForCausalLM",
        cuda=8,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        vocab_size=50304,
    ),
    "smollm-135m": _tokens(
        "LlamaForCausalLM",
        "llama",
        cuda=8,
        hidden_size=576,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        intermediate_size=1536,
        vocab_size=49152,
        tie_word_embeddings=True,
    ),
    "qwen2-0.5b": _tokens(
        "Qwen2ForCausalLM",
        "Qwen3-0.6B",
        cuda=4,
        hidden_size=896,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        intermediate_size=4864,
        tie_word_embeddings=True,
    ),
    "t5-small": _tokens("T5ForConditionalGeneration", "t5", decoder_start_token_id=0),
    "bart-base": _tokens(
        "BartForConditionalGeneration",
        "BartForConditionalGeneration",
        d_model=768,
        encoder_layers=6,
        decoder_layers=6,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
    ),
}

OTHERS: Mapping[str, Published] = {
    "whisper-tiny-encoder": _own(whisper_encoder, partial(whisper_encoder, positions=64, layers=1), cpu=4, cuda=16),
    "decode-step": _own(decode_step, partial(decode_step, sizes=TINY), cpu=8, cuda=32, modes=("inference",)),
    "diffusion-unet": _own(diffusion_unet, partial(diffusion_unet, widths=(32, 32), blocks=1), cpu=8, cuda=128),
    "dlrm": _own(dlrm, partial(dlrm, rows=50), cpu=512, cuda=8192),
    "deepfm": _own(deepfm, partial(deepfm, rows=50), cpu=512, cuda=8192),
    "resnet50-fpn": _own(resnet_fpn, partial(resnet_fpn, side=64, width=16, layers=[1, 1, 1, 1]), cpu=2, cuda=16),
}

MODELS: Mapping[str, Published] = {**IMAGES, **TEXT, **OTHERS}


def build(name: str, batch: int, device: str = "cpu", scale: str = "line") -> ModelCase:
    """The model called ``name`` on the device, with inputs for ``batch`` rows, in ``eval`` mode; on the scale "tiny" a
    small one. Raises KeyError for a name that is not in ``MODELS``.
    """
    model = MODELS[name]
    return (model.tiny(batch) if scale == "tiny" else model.build(batch, device)).on(device)
