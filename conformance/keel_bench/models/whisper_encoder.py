"""The encoder of Whisper (tiny): spectrograms through two convolutions and a transformer."""

from __future__ import annotations

from typing import Any

import torch

from keel_conformance.models.model_case import ModelCase
from keel_conformance.models.vision_ops import allow_torchvision


def whisper_encoder(batch: int, positions: int = 1500, layers: int = 4, seed: int = 0) -> ModelCase:
    """Thirty seconds of sound in each row, by default. The widths are those of the default configuration."""
    allow_torchvision()
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    torch.manual_seed(seed)
    config = WhisperConfig(max_source_positions=positions, encoder_layers=layers)
    model: Any = WhisperEncoder(config)
    sound = torch.randn(batch, config.num_mel_bins, 2 * positions)
    return ModelCase("whisper-tiny-encoder", model.eval(), (sound,), {}, {}, lambda out: out[0].float().square().mean())
