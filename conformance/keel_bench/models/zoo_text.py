"""The transformers of PyTorch 2.0's public benchmark list, and some newer ones: their architectures, small, offline.

A model is its class and what its configuration needs beside the small sizes that all share. Dropout rates are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from keel_conformance.models.model_case import ModelCase
from keel_conformance.models.vision_ops import allow_torchvision

BATCH, LENGTH = 2, 64
GROUPED = {"num_key_value_heads": 2}
SLIDING = {**GROUPED, "sliding_window": 16}

TEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "AlbertForMaskedLM": ("AlbertForMaskedLM", {}),
    "AlbertForQuestionAnswering": ("AlbertForQuestionAnswering", {}),
    "AllenaiLongformerBase": ("LongformerForMaskedLM", {"attention_window": [16, 16], "type_vocab_size": 1}),
    "BartForCausalLM": ("BartForCausalLM", {}),
    "BartForConditionalGeneration": ("BartForConditionalGeneration", {}),
    "BertForMaskedLM": ("BertForMaskedLM", {}),
    "BertForQuestionAnswering": ("BertForQuestionAnswering", {}),
    "BlenderbotForCausalLM": ("BlenderbotForCausalLM", {}),
    "BlenderbotForConditionalGeneration": ("BlenderbotForConditionalGeneration", {}),
    "BlenderbotSmallForCausalLM": ("BlenderbotSmallForCausalLM", {}),
    "BlenderbotSmallForConditionalGeneration": ("BlenderbotSmallForConditionalGeneration", {}),
    "CamemBert": ("CamembertForMaskedLM", {}),
    "DebertaForMaskedLM": ("DebertaForMaskedLM", {}),
    "DebertaForQuestionAnswering": ("DebertaForQuestionAnswering", {}),
    "DebertaV2ForMaskedLM": ("DebertaV2ForMaskedLM", {}),
    "DebertaV2ForQuestionAnswering": ("DebertaV2ForQuestionAnswering", {}),
    "DistilBertForMaskedLM": ("DistilBertForMaskedLM", {}),
    "DistilBertForQuestionAnswering": ("DistilBertForQuestionAnswering", {}),
    "DistillGPT2": ("GPT2LMHeadModel", {}),
    "ElectraForCausalLM": ("ElectraForCausalLM", {}),
    "ElectraForQuestionAnswering": ("ElectraForQuestionAnswering", {}),
    "GPT2ForSequenceClassification": ("GPT2ForSequenceClassification", {"pad_token_id": 0}),
    "GPTJForCausalLM": ("GPTJForCausalLM", {}),
    "GPTJForQuestionAnswering": ("GPTJForQuestionAnswering", {}),
    "GPTNeoForCausalLM": ("GPTNeoForCausalLM", {"attention_types": [[["global", "local"], 1]]}),
    "GPTNeoForSequenceClassification": (
        "GPTNeoForSequenceClassification",
        {"attention_types": [[["global", "local"], 1]], "pad_token_id": 0},
    ),
    "GoogleFnet": ("FNetForMaskedLM", {}),
    "LayoutLMForMaskedLM": ("LayoutLMForMaskedLM", {}),
    "LayoutLMForSequenceClassification": ("LayoutLMForSequenceClassification", {}),
    "Llama-3.2-1B": ("LlamaForCausalLM", GROUPED),
    "M2M100ForConditionalGeneration": ("M2M100ForConditionalGeneration", {}),
    "MBartForCausalLM": ("MBartForCausalLM", {}),
    "MBartForConditionalGeneration": ("MBartForConditionalGeneration", {}),
    "MT5ForConditionalGeneration": ("MT5ForConditionalGeneration", {}),
    "MegatronBertForCausalLM": ("MegatronBertForCausalLM", {}),
    "MegatronBertForQuestionAnswering": ("MegatronBertForQuestionAnswering", {}),
    "Mistral-7B-v0.3": ("MistralForCausalLM", GROUPED),
    "MobileBertForMaskedLM": ("MobileBertForMaskedLM", {}),
    "MobileBertForQuestionAnswering": ("MobileBertForQuestionAnswering", {}),
    "OPTForCausalLM": ("OPTForCausalLM", {}),
    "PLBartForCausalLM": ("PLBartForCausalLM", {}),
    "PLBartForConditionalGeneration": ("PLBartForConditionalGeneration", {}),
    "PegasusForCausalLM": ("PegasusForCausalLM", {}),
    "PegasusForConditionalGeneration": ("PegasusForConditionalGeneration", {}),
    "Qwen3-0.6B": ("Qwen3ForCausalLM", GROUPED),
    "RobertaForCausalLM": ("RobertaForCausalLM", {"pad_token_id": 0}),
    "RobertaForQuestionAnswering": ("RobertaForQuestionAnswering", {"pad_token_id": 0}),
    # Its class is gone from transformers 5; it was this decoder.
    "Speech2Text2ForCausalLM": ("BartForCausalLM", {"decoder_layers": 3}),
    "T5ForConditionalGeneration": ("T5ForConditionalGeneration", {}),
    "T5Small": ("T5ForConditionalGeneration", {"num_layers": 1}),
    "TrOCRForCausalLM": ("TrOCRForCausalLM", {}),
    "XGLMForCausalLM": ("XGLMForCausalLM", {}),
    "XLNetLMHeadModel": ("XLNetLMHeadModel", {}),
    "YituTechConvBert": ("ConvBertForMaskedLM", {"embedding_size": 64}),
    "gemma-2-2b": ("Gemma2ForCausalLM", {**SLIDING, "query_pre_attn_scalar": 16}),
    "gemma-3-4b-it-text": ("Gemma3ForCausalLM", {**SLIDING, "query_pre_attn_scalar": 16}),
    "gpt-oss-20b": ("GptOssForCausalLM", {**SLIDING, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "whisper-tiny": (
        "WhisperForConditionalGeneration",
        {
            "num_mel_bins": 16,
            "max_source_positions": 64,
            "max_target_positions": 64,
            "suppress_tokens": None,
            "begin_suppress_tokens": None,
            "decoder_start_token_id": 2,
            "bos_token_id": 2,
            "eos_token_id": 2,
            "pad_token_id": 2,
        },
    ),
}

SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "word_embed_proj_dim", "pooler_hidden_size"), 64),
    **dict.fromkeys(
        ("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "ffn_dim", "d_ff", "d_inner", "hidden_dim"), 128
    ),
    **dict.fromkeys(
        (
            "num_hidden_layers",
            "n_layer",
            "n_layers",
            "num_layers",
            "encoder_layers",
            "decoder_layers",
            "num_decoder_layers",
        ),
        2,
    ),
    **dict.fromkeys(
        (
            "num_attention_heads",
            "n_head",
            "n_heads",
            "num_heads",
            "encoder_attention_heads",
            "decoder_attention_heads",
            "attention_heads",
        ),
        4,
    ),
    **dict.fromkeys(("d_kv", "d_head", "head_dim"), 16),
    **dict.fromkeys(("embedding_size", "intra_bottleneck_size", "classifier_proj_size"), 32),
    "vocab_size": 1000,
    "max_position_embeddings": 130,
    "n_positions": 128,
    "rotary_dim": 8,
    "max_2d_position_embeddings": 64,
}
"""Of these, a configuration gets what it has."""
TOKENS = (
    "pad_token_id",
    "eos_token_id",
    "bos_token_id",
    "decoder_start_token_id",
    "forced_eos_token_id",
    "sep_token_id",
)


def build(name: str, seed: int = 0, batch: int = BATCH, length: int = LENGTH) -> ModelCase:
    """The model of that name in TEXT, small, with inputs and targets of ``batch`` rows of ``length`` tokens."""
    known_as, own = TEXT[name]
    return transformer(name, known_as, lambda known: _sizes(known, own), seed, batch, length)


def published(name: str, known_as: str, own: dict[str, Any], batch: int, length: int, seed: int = 0) -> ModelCase:
    """The model of transformers' class ``known_as`` with the sizes of its default configuration, but for ``own``."""
    return transformer(name, known_as, lambda known: {**_fixed(known), **own}, seed, batch, length)


def transformer(
    name: str, known_as: str, sizes: Callable[[dict[str, Any]], dict[str, Any]], seed: int, batch: int, length: int
) -> ModelCase:
    """The model of that class, with the ``sizes`` of what its configuration knows, and inputs and targets."""
    allow_torchvision()
    import transformers

    cls = getattr(transformers, known_as)
    made = transformers.Gemma3TextConfig if known_as == "Gemma3ForCausalLM" else cls.config_class
    config = made(**sizes(made().to_dict()))
    config.use_cache = False
    if known_as == "GPT2LMHeadModel":
        config.loss_type = "ForCausalLM"  # unset, it makes transformers log inside forward, which breaks the graph
    torch.manual_seed(seed)
    model = cls(config).eval()
    generator = torch.Generator().manual_seed(seed + 1)
    kwargs, targets = _inputs(known_as, config, generator, batch, length)
    return ModelCase(
        name,
        model,
        (),
        kwargs,
        targets,
        lambda out: out.loss,
        widen=_one_expert_at_a_time if hasattr(config, "num_local_experts") else lambda model: None,
    )


def _one_expert_at_a_time(model: Any) -> None:
    model.set_experts_implementation("eager")  # grouped products have no float64


def _sizes(known: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    sizes = {k: v for k, v in SMALL.items() if known.get(k) is not None}
    sizes |= {k: 2 for k in TOKENS if isinstance(known.get(k), int) and known[k] >= SMALL["vocab_size"]}
    if "num_key_value_heads" in known:
        sizes |= GROUPED
    if known.get("layer_types"):
        sizes["layer_types"] = (sorted(set(known["layer_types"])) * 2)[:2]
    return {**sizes, **_fixed(known), **own}


def _fixed(known: dict[str, Any]) -> dict[str, Any]:
    """What no configuration may choose: dropout rates are 0, and nothing is cached."""
    rates = [k for k, v in known.items() if "drop" in k and isinstance(v, int | float) and type(v) is not bool]
    return {**dict.fromkeys(rates, 0.0), "use_cache": False}


def _inputs(
    known_as: str,
    config: Any,
    generator: torch.Generator,
    batch: int,
    length: int,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    def drawn(high: int, *shape: int, low: int = 3) -> Tensor:  # the first few stand for padding and the like
        return torch.randint(low, high, shape, generator=generator)

    words = config.vocab_size
    if known_as.startswith("Whisper"):
        sound = torch.randn(batch, config.num_mel_bins, 2 * config.max_source_positions, generator=generator)
        tokens = drawn(words, batch, length)
        return {"input_features": sound, "decoder_input_ids": tokens}, {"labels": drawn(words, batch, length)}
    tokens = drawn(words, batch, length)
    if "Bart" in known_as and config.eos_token_id is not None:
        tokens[:, -1] = config.eos_token_id
    kwargs = {"input_ids": tokens}
    if known_as.endswith("ConditionalGeneration"):
        kwargs["decoder_input_ids"] = tokens
    if known_as.endswith("QuestionAnswering"):
        return kwargs, {n: drawn(length, batch, low=0) for n in ("start_positions", "end_positions")}
    if known_as.endswith("SequenceClassification"):
        return kwargs, {"labels": drawn(config.num_labels, batch, low=0)}
    return kwargs, {"labels": drawn(words, batch, length)}
