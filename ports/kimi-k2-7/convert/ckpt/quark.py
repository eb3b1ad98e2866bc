"""AMD Quark's MXFP4 release, one tensor an expert, as vLLM's fused MXFP4 layout.

Source names and dtypes: Quark 0.12's exporter.  Target: vLLM 0.30.0, ``model_executor/layers/quantization/mxfp4.py``: of each
layer, ``w13_weight`` [E, 2I, H/2] (gate rows, then up rows), ``w2_weight`` [E, H, I/2], and their E8M0 scales, a byte for 32
elements of K.
Routed experts keep their bytes; whatever else is quantized becomes BF16.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ckpt.dequantize import GROUP
from ckpt.errors import CheckpointError
from ckpt.headers import Tensor
from ckpt.plan import File, Kind, Piece, Plan, Target
from ckpt.source import Checkpoint

TOOL = "repack_quark_mxfp4"
QUANT_METHOD = "gpt_oss_mxfp4"
"""What vLLM calls the fused layout."""

_NUMBER = "(0|[1-9][0-9]{0,8})"
_EXPERT = re.compile(rf"((?:.*\.)?layers\.){_NUMBER}\.mlp\.experts\.{_NUMBER}\.(.+)")
_OTHER_QUARK = re.compile(
    r"(^|[._])((weight|input|output|bias)_(scale|scale_inv|scale_2|zero_point|quantizer)|[qkv]_scale|prob_scale|zero_point)$"
    r"|_quantizer\."
)
"""Names of scales and the like that Quark 0.12's exporter does not write, but other versions and tools do."""
_PARTS = [f"{projection}_proj.{what}" for projection in ("gate", "up", "down") for what in ("weight", "weight_scale")]
_PLAIN = ("BF16", "F16", "F32", "F64", "I8", "I16", "I32", "I64", "BOOL")
_SCALES = ("U8", "F8_E8M0", "F32", "BF16")

Experts = dict[int, dict[int, dict[str, Tensor]]]


def fused_plan(checkpoint: Checkpoint) -> Plan:
    """The whole conversion, from the headers alone.  Raises :class:`CheckpointError` for what it would not convert exactly."""
    _check_config(checkpoint)
    prefix, experts = _experts(checkpoint)
    layers: dict[int, list[Target]] = defaultdict(list)
    rest: list[Target] = []
    for layer, of_layer in experts.items():
        layers[layer] = list(_fused(f"{prefix}{layer}.mlp.experts.", of_layer))
    inside = re.compile(re.escape(prefix) + r"(\d+)\.")
    for target in _others(checkpoint):
        found = inside.match(target.name)
        (layers[int(found[1])] if found else rest).append(target)
    groups = [layers[layer] for layer in sorted(layers)] + ([rest] if rest else [])
    files = [File(f"model-{number:05d}-of-{len(groups):05d}.safetensors", group) for number, group in enumerate(groups, 1)]
    config = {key: value for key, value in checkpoint.config.items() if key != "quantization_config"}
    if isinstance(config.get("text_config"), dict):
        config["text_config"] = {key: value for key, value in config["text_config"].items() if key != "quantization_config"}
    config["quantization_config"] = {"quant_method": QUANT_METHOD}
    return Plan(TOOL, files, config, checkpoint.others, checkpoint.folder, checkpoint.fingerprint())


def _check_config(checkpoint: Checkpoint) -> None:
    """A configuration is that of what this converts."""
    place = checkpoint.folder / "config.json"
    text = checkpoint.config.get("text_config", checkpoint.config)
    if not isinstance(text, dict):
        raise CheckpointError(f"{place}: text_config is no mapping")
    quantization: Any = checkpoint.config.get("quantization_config") or text.get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    if method == QUANT_METHOD:
        raise CheckpointError(f"{checkpoint.folder}: is in the fused layout already")
    if method != "quark":
        raise CheckpointError(f"{place}: quant_method is {method!r}, not 'quark': this is no release made with AMD Quark")
    every = quantization.get("global_quant_config")
    weight = every.get("weight") if isinstance(every, dict) else None
    wanted = {"dtype": "fp4", "qscheme": "per_group", "group_size": GROUP, "scale_format": "e8m0"}
    for key, value in wanted.items():
        if not isinstance(weight, dict) or weight.get(key) != value:
            found = weight.get(key) if isinstance(weight, dict) else None
            raise CheckpointError(
                f"{place}: global_quant_config.weight.{key} is {found!r}, not {value!r}: these are no MXFP4 weights"
            )
    export = quantization.get("export")
    if isinstance(export, dict) and export.get("weight_format") not in (None, "real_quantized"):
        raise CheckpointError(f"{place}: weight_format is {export['weight_format']!r}, not 'real_quantized'")
    if not any(path.name.upper().startswith("LICENSE") for path in checkpoint.others if len(path.parts) == 1):
        raise CheckpointError(f"{checkpoint.folder}: has no LICENSE, which goes with the weights: fetch it")


def _experts(checkpoint: Checkpoint) -> tuple[str, Experts]:
    """Every tensor of every expert of every layer; none is missing and none is too many."""
    found: Experts = defaultdict(lambda: defaultdict(dict))
    prefixes: dict[str, str] = {}
    for name, tensor in checkpoint.tensors.items():
        if "mlp.experts." in name:
            match = _EXPERT.fullmatch(name)
            if match is None or match[4] not in _PARTS:
                raise CheckpointError(_not_of_quark(tensor))
            prefix, layer, expert, part = match.groups()
            prefixes.setdefault(prefix, name)
            found[int(layer)][int(expert)][part] = tensor
    if not found:
        raise CheckpointError(
            f"{checkpoint.folder}: holds no layers.N.mlp.experts.E.gate_proj.weight: not a model of routed experts"
        )
    if len(prefixes) > 1:
        raise CheckpointError(f"{checkpoint.folder}: experts of more than one model: {' and '.join(prefixes.values())}")
    layers, count = routed(checkpoint, {*found}, 1 + max(expert for of_layer in found.values() for expert in of_layer))
    prefix = next(iter(prefixes))
    for layer in layers:
        for expert in range(count):
            for part in _PARTS:
                if part not in found.get(layer, {}).get(expert, {}):
                    raise CheckpointError(
                        f"{checkpoint.folder}: {prefix}{layer}.mlp.experts.{expert}.{part} is missing: a shard is missing or old"
                    )
    for layer in found:
        if layer not in layers or len(found[layer]) != count:
            extra = max(found[layer])
            raise CheckpointError(
                f"{checkpoint.folder}: {prefix}{layer}.mlp.experts.{extra} is one too many: "
                f"config.json says {layers.stop} layers of {count} experts"
            )
    return prefix, {layer: dict(sorted(found[layer].items())) for layer in sorted(found)}


def routed(checkpoint: Checkpoint, found: set[int], experts: int) -> tuple[range, int]:
    """The layers that have routed experts, and how many, by config.json; where it does not say, by what was found."""
    text = checkpoint.config.get("text_config", checkpoint.config)
    count = text.get("n_routed_experts", experts)
    layers = text.get("num_hidden_layers", 1 + max(found))
    first = text.get("first_k_dense_replace", min(found))
    if not all(type(value) is int and 0 <= value < 100_000 for value in (count, layers, first)):
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: n_routed_experts, num_hidden_layers or first_k_dense_replace is no count"
        )
    return range(first, layers), count


def _fused(name: str, experts: dict[int, dict[str, Tensor]]) -> Iterator[Target]:
    """The four tensors of a layer's experts."""
    model = next(iter(experts.values()))
    rows, half = _matrix(model["gate_proj.weight"], "U8")
    hidden = half * 2
    shapes = {
        "gate_proj.weight": (rows, half), "up_proj.weight": (rows, half), "down_proj.weight": (hidden, rows // 2),
        "gate_proj.weight_scale": (rows, hidden // GROUP), "up_proj.weight_scale": (rows, hidden // GROUP),
        "down_proj.weight_scale": (hidden, rows // GROUP),
    }  # fmt: skip
    if hidden % GROUP or rows % GROUP:
        raise CheckpointError(f"{model['gate_proj.weight']}: {rows} rows of {hidden} do not divide into groups of {GROUP}")
    for parts in experts.values():
        for part, shape in shapes.items():
            tensor = parts[part]
            dtypes = _SCALES if part.endswith("scale") else ("U8",)
            if tensor.shape != shape or tensor.dtype not in dtypes:
                raise CheckpointError(
                    f"{tensor.path}: {tensor.name} is {tensor.dtype} {list(tensor.shape)}, not {dtypes[0]} {list(shape)}"
                )
    for fused, halves, shape in (
        ("w13_weight", ("gate_proj.weight", "up_proj.weight"), (2 * rows, half)),
        ("w13_weight_scale", ("gate_proj.weight_scale", "up_proj.weight_scale"), (2 * rows, hidden // GROUP)),
        ("w2_weight", ("down_proj.weight",), (hidden, rows // 2)),
        ("w2_weight_scale", ("down_proj.weight_scale",), (hidden, rows // GROUP)),
    ):
        kind: Kind = "scales" if fused.endswith("scale") else "copy"
        size = shape[0] * shape[1] // len(halves)
        sources = [parts[half_name] for parts in experts.values() for half_name in halves]
        pieces = [Piece(kind, (source,), number * size, size) for number, source in enumerate(sources)]
        yield Target(f"{name}{fused}", "U8", (len(experts), *shape), pieces)


def _others(checkpoint: Checkpoint) -> Iterator[Target]:
    """Every tensor that is none of an expert: as it is, or in BF16 if it was quantized."""
    tensors = checkpoint.tensors
    for name in sorted(tensors):
        tensor = tensors[name]
        if _EXPERT.fullmatch(name):
            continue
        if name.endswith(".weight_scale"):
            if f"{name.removesuffix('_scale')}" not in tensors:
                raise CheckpointError(f"{tensor.path}: {name} is the scale of a weight that is not there")
            continue
        scale = tensors.get(f"{name}_scale") if name.endswith(".weight") else None
        if scale is not None:
            yield _dequantized(tensor, scale)
        elif _OTHER_QUARK.search(name):
            raise CheckpointError(_not_of_quark(tensor))
        elif tensor.dtype in ("U8", "F8_E4M3") and name.endswith(".weight"):
            raise CheckpointError(f"{tensor.path}: {name} is {tensor.dtype}, and its weight_scale is not there")
        elif tensor.dtype not in _PLAIN:
            raise CheckpointError(f"{tensor.path}: {name} is {tensor.dtype}, and no format of this release")
        else:
            yield Target(name, tensor.dtype, tensor.shape, [Piece("copy", (tensor,), 0, tensor.size)])


def _not_of_quark(tensor: Tensor) -> str:
    return f"{tensor.path}: {tensor.name}: a name that Quark 0.12 does not give: this is the release of another version"


def _dequantized(weight: Tensor, scale: Tensor) -> Target:
    rows, columns = _matrix(weight, "U8", "F8_E4M3")
    if weight.dtype == "U8":
        kind: Kind = "mxfp4"
        columns *= 2
        good = columns % GROUP == 0 and scale.shape == (rows, columns // GROUP) and scale.dtype in _SCALES
    else:
        kind = "fp8"
        good = scale.shape in ((rows,), (rows, 1)) and scale.dtype == "F32"
    if not good:
        raise CheckpointError(f"{scale.path}: {scale.name} is {scale.dtype} {list(scale.shape)}, which does not fit {weight}")
    return Target(weight.name, "BF16", (rows, columns), [Piece(kind, (weight, scale), 0, rows * columns * 2)])


def _matrix(tensor: Tensor, *dtypes: str) -> tuple[int, int]:
    if len(tensor.shape) != 2 or tensor.dtype not in dtypes or 0 in tensor.shape:
        raise CheckpointError(
            f"{tensor.path}: {tensor.name} is {tensor.dtype} {list(tensor.shape)}, not a matrix of {' or '.join(dtypes)}"
        )
    return tensor.shape[0], tensor.shape[1]
