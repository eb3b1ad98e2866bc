"""Checkpoints like AMD Quark's, of any size, with random bytes; and one with every header of the real model and no data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ITEM_BYTES = {"U8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "BF16": 2, "F32": 4}
PREFIX = "language_model.model.layers."
QUARK = {
    "quant_method": "quark",
    "version": "0.12.post1",
    "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}},
    "layer_quant_config": {"*self_attn*": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel"}}},
    "export": {"weight_format": "real_quantized", "pack_method": "reorder"},
}

Entry = tuple[str, str, tuple[int, ...]]


@dataclass(frozen=True)
class Shape:
    """The proportions of a model."""

    layers: int = 3
    dense: int = 1
    experts: int = 4
    hidden: int = 64
    moe: int = 32
    wide: int = 96
    rank: int = 64
    vocabulary: int = 64
    scale_dtype: str = "U8"
    powers: tuple[int, int] = (90, 160)
    prefix: str = PREFIX
    extra: tuple[Entry, ...] = field(default=())


KIMI = Shape(layers=61, dense=1, experts=384, hidden=7168, moe=2048, wide=18432, rank=512, vocabulary=163840)
"""Kimi-K2.7's own routed experts, layers and dense sizes; attention in one matrix of each kind."""


def entries(shape: Shape) -> Iterator[tuple[int, Entry]]:
    """Every tensor, with the number of its shard."""

    def mxfp4(name: str, rows: int, columns: int) -> Iterator[Entry]:
        yield f"{name}.weight", "U8", (rows, columns // 2)
        yield f"{name}.weight_scale", shape.scale_dtype, (rows, columns // 32)

    for layer in range(shape.layers):
        at = f"{shape.prefix}{layer}."
        of_layer: list[Entry] = [
            (f"{at}input_layernorm.weight", "BF16", (shape.hidden,)),
            (f"{at}self_attn.o_proj.weight", "F8_E4M3", (shape.hidden, shape.rank)),
            (f"{at}self_attn.o_proj.weight_scale", "F32", (shape.hidden,)),
        ]
        if layer < shape.dense:
            for part, rows, columns in (
                ("gate", shape.wide, shape.hidden),
                ("up", shape.wide, shape.hidden),
                ("down", shape.hidden, shape.wide),
            ):
                of_layer += mxfp4(f"{at}mlp.{part}_proj", rows, columns)
        else:
            of_layer.append((f"{at}mlp.gate.e_score_correction_bias", "F32", (shape.experts,)))
            for name in ("shared_experts", *(f"experts.{expert}" for expert in range(shape.experts))):
                for part, rows, columns in (
                    ("gate", shape.moe, shape.hidden),
                    ("up", shape.moe, shape.hidden),
                    ("down", shape.hidden, shape.moe),
                ):
                    of_layer += mxfp4(f"{at}mlp.{name}.{part}_proj", rows, columns)
        # Expert 10 sorts before 2, and the bytes of a layer are spread over two shards.
        for number, entry in enumerate(sorted(of_layer)):
            yield layer + (number * 2 >= len(of_layer)), entry
    yield 0, ("language_model.model.embed_tokens.weight", "BF16", (shape.vocabulary, shape.hidden))
    yield shape.layers, ("language_model.lm_head.weight", "BF16", (shape.vocabulary, shape.hidden))
    for extra in shape.extra:
        yield 0, extra


def write_quark(folder: Path, shape: Shape, *, data: bool = True, seed: int = 0) -> Path:
    """Write a checkpoint; without data its shards have the right length and are holes."""
    folder.mkdir(parents=True, exist_ok=True)
    shards: dict[int, list[Entry]] = {}
    for shard, entry in entries(shape):
        shards.setdefault(shard, []).append(entry)
    names = {shard: f"model-{number:05d}-of-{len(shards):06d}.safetensors" for number, shard in enumerate(sorted(shards), 1)}
    random = np.random.default_rng(seed)
    for shard, of_shard in shards.items():
        with (folder / names[shard]).open("wb") as file:
            header, end = {}, 0
            for name, dtype, dims in of_shard:
                size = math.prod(dims) * ITEM_BYTES[dtype]
                header[name] = {"dtype": dtype, "shape": list(dims), "data_offsets": [end, end + size]}
                end += size
            text = json.dumps(header).encode()
            file.write(len(text).to_bytes(8, "little") + text)
            if not data:
                file.truncate(8 + len(text) + end)
                continue
            for name, dtype, dims in of_shard:
                file.write(content(random, name, dtype, dims, shape.powers))
    placed = {entry[0]: names[shard] for shard, of_shard in shards.items() for entry in of_shard}
    text_config = {"num_hidden_layers": shape.layers, "n_routed_experts": shape.experts, "first_k_dense_replace": shape.dense}
    write_json(folder / "config.json", {"architectures": ["X"], "text_config": text_config, "quantization_config": QUARK})
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": 0}, "weight_map": placed})
    (folder / "LICENSE").write_text("Do as you like.\n")
    (folder / "tokenizer").mkdir(exist_ok=True)
    (folder / "tokenizer/vocab.txt").write_text("a\nb\n")
    return folder


def write_json(file: Path, data: Any) -> None:
    """Write JSON."""
    file.write_text(json.dumps(data), encoding="utf-8")


def content(random: np.random.Generator, name: str, dtype: str, dims: tuple[int, ...], span: tuple[int, int]) -> bytes:
    """Random bytes that are numbers of the dtype."""
    count = math.prod(dims)
    if (name.endswith("weight_scale") and dtype != "F32") or (name.endswith("weight_scale") and len(dims) == 2):
        powers = random.integers(*span, count)
        if dtype == "F32":
            return np.ldexp(1.0, powers - 127).astype("<f4").tobytes()
        if dtype == "BF16":
            return (powers.astype("<u2") << 7).astype("<u2").tobytes()
        return powers.astype(np.uint8).tobytes()
    if dtype == "F8_E4M3":
        codes = random.integers(0, 256, count).astype(np.uint8)
        return np.where(codes & 127 == 127, 0, codes).astype(np.uint8).tobytes()
    if dtype == "F32":
        return random.standard_normal(count).astype("<f4").tobytes()
    if dtype == "BF16":
        return (random.standard_normal(count).astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return random.bytes(count * ITEM_BYTES[dtype])
