"""Transformers over tokens, with random weights: an encoder, two decoders and an encoder-decoder.

``line`` is the published width of the base model with two layers; ``tiny`` keeps the architecture alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .model_case import ModelCase
from .vision_ops import allow_torchvision


def bert(scale: str, device: str, seed: int, batch: int | None, length: int | None) -> ModelCase:
    """BERT with its masked-language head."""
    allow_torchvision()
    from transformers import BertConfig, BertForMaskedLM

    sizes: dict[str, Any] = (
        {} if scale == "line" else dict(hidden_size=64, num_attention_heads=4, intermediate_size=128, vocab_size=1000)
    )
    config = BertConfig(num_hidden_layers=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes)
    return _over_tokens("bert", BertForMaskedLM, config, scale, device, seed, batch, length, masked=True)


def gpt2(scale: str, device: str, seed: int, batch: int | None, length: int | None) -> ModelCase:
    """GPT-2 with its language-model head."""
    allow_torchvision()
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = (
        {}
        if scale == "line"
        else dict(n_embd=64, n_head=4, vocab_size=1000, n_positions=256, bos_token_id=1, eos_token_id=1)
    )
    config = GPT2Config(n_layer=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, **sizes)
    case = _over_tokens("gpt2", GPT2LMHeadModel, config, scale, device, seed, batch, length)
    setattr(case.model, "loss_type", "ForCausalLM")  # noqa: B010  # unset, it makes transformers log inside forward, which breaks the graph
    return case


def llama(scale: str, device: str, seed: int, batch: int | None, length: int | None) -> ModelCase:
    """A Llama-style decoder: RMS norm, rotary positions, gated MLP, grouped-query attention."""
    allow_torchvision()
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = (
        dict(
            hidden_size=1024,
            intermediate_size=2816,
            num_attention_heads=16,
            num_key_value_heads=4,
            vocab_size=32000,
        )
        if scale == "line"
        else dict(hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2, vocab_size=1000)
    )
    config = LlamaConfig(num_hidden_layers=2, attention_dropout=0.0, use_cache=False, **sizes)
    return _over_tokens("llama", LlamaForCausalLM, config, scale, device, seed, batch, length)


def t5(scale: str, device: str, seed: int, batch: int | None, length: int | None) -> ModelCase:
    """T5, encoder and decoder, with relative position buckets."""
    allow_torchvision()
    from transformers import T5Config, T5ForConditionalGeneration

    sizes: dict[str, Any] = (
        dict(decoder_start_token_id=0, d_model=768, d_ff=3072, num_heads=12, d_kv=64)
        if scale == "line"
        else dict(decoder_start_token_id=0, d_model=64, d_ff=128, num_heads=4, d_kv=16, vocab_size=1000)
    )
    config = T5Config(num_layers=2, num_decoder_layers=2, dropout_rate=0.0, use_cache=False, **sizes)
    return _over_tokens("t5", T5ForConditionalGeneration, config, scale, device, seed, batch, length)


def _over_tokens(
    name: str,
    cls: Any,
    config: Any,
    scale: str,
    device: str,
    seed: int,
    batch: int | None,
    length: int | None,
    masked: bool = False,
) -> ModelCase:
    torch.manual_seed(seed)
    model = cls(config).to(device)
    shape = (batch or 2, length or (128 if scale == "line" else 32))
    generator = torch.Generator().manual_seed(seed + 1)

    def tokens(low: int = 1) -> Tensor:
        return torch.randint(low, config.vocab_size, shape, generator=generator).to(device)

    kwargs: dict[str, Any] = {"input_ids": tokens()}
    targets = {"labels": tokens()}
    if masked:  # padding at the end of the last row, as a batch of sentences of unequal length has
        mask = torch.ones(shape, dtype=torch.int64)
        mask[-1, shape[1] - shape[1] // 4 :] = 0
        kwargs["attention_mask"] = mask.to(device)
        targets["labels"] = targets["labels"].masked_fill(kwargs["attention_mask"] == 0, -100)
    if name == "t5":  # the decoder's input is explicit, so that inference and training run the same graph
        kwargs["decoder_input_ids"] = tokens(low=0)
    return ModelCase(name, model, (), kwargs, targets, lambda out: out.loss)
