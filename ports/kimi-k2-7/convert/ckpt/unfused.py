"""A fused MXFP4 checkpoint as per-channel FP8, one tensor an expert, in the form of compressed-tensors.

Names and shapes: compressed-tensors' "float-quantized" with the strategy "channel", as vLLM's loaders of experts read it:
``experts.E.gate_proj.weight`` F8_E4M3 [N, K] and ``….weight_scale`` F32 [N, 1].  Everything else is copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ckpt.dequantize import GROUP
from ckpt.errors import CheckpointError
from ckpt.headers import Tensor
from ckpt.plan import File, Form, Piece, Plan, Target
from ckpt.quark import QUANT_METHOD
from ckpt.source import Checkpoint

TOOL = "mxfp4_to_fp8"
_FUSED = re.compile(r"(.*\.mlp\.experts\.)(w13|w2)_weight(_scale)?")


def fp8_plan(checkpoint: Checkpoint, form: Form) -> Plan:
    """The whole conversion, from the headers alone.  Raises :class:`CheckpointError`."""
    quantization = checkpoint.config.get("quantization_config")
    if not isinstance(quantization, dict) or quantization.get("quant_method") != QUANT_METHOD:
        raise CheckpointError(f"{checkpoint.folder}: quant_method is not {QUANT_METHOD!r}: give what repack_quark_mxfp4.py made")
    by_file: dict[str, list[Target]] = {path.name: [] for path in checkpoint.shards}
    fused = 0
    for name in sorted(checkpoint.tensors):
        tensor = checkpoint.tensors[name]
        match = _FUSED.fullmatch(name)
        if match is None:
            by_file[tensor.path.name].append(Target(name, tensor.dtype, tensor.shape, [Piece("copy", (tensor,), 0, tensor.size)]))
        elif not match[3]:
            fused += 1
            by_file[tensor.path.name] += _experts(match[1], match[2], tensor, checkpoint.tensors.get(f"{name}_scale"), form)
        elif name.removesuffix("_scale") not in checkpoint.tensors:
            raise CheckpointError(f"{tensor.path}: {name} is the scale of a weight that is not there")
    if not fused:
        raise CheckpointError(f"{checkpoint.folder}: holds no experts.w13_weight: give what repack_quark_mxfp4.py made")
    files = [File(name, targets) for name, targets in by_file.items()]
    linears = sorted(
        target.name.removesuffix(".weight")
        for file in files
        for target in file.targets
        if target.name.endswith(".weight") and target.dtype == "BF16" and len(target.shape) == 2
    )
    config = {**checkpoint.config, "quantization_config": _compressed_tensors(linears)}
    others = [path for path in checkpoint.others if str(path) not in ("conversion.json", ".conversion.lock")]
    tool = f"{TOOL} {form.largest}{' rounded' if form.rounds else ''}"
    return Plan(tool, files, config, others, checkpoint.folder, checkpoint.fingerprint())


def _compressed_tensors(ignored: list[str]) -> dict[str, object]:
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False},
                "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True},
            }
        },
        "ignore": ignored,
    }


def _experts(prefix: str, which: str, weight: Tensor, scale: Tensor | None, form: Form) -> Iterator[Target]:
    """The FP8 weights and the scales of every expert of a fused weight."""
    good = len(weight.shape) == 3 and weight.dtype == "U8" and 0 not in weight.shape and weight.shape[2] * 2 % GROUP == 0
    if not good or (which == "w13" and weight.shape[1] % 2):
        raise CheckpointError(
            f"{weight.path}: {weight.name} is {weight.dtype} {list(weight.shape)}, not U8 [experts, rows, bytes]"
        )
    experts, rows, half = weight.shape
    if scale is None or scale.dtype != "U8" or scale.shape != (experts, rows, half * 2 // GROUP):
        raise CheckpointError(f"{weight.path}: {weight.name} has no weight_scale of U8 {[experts, rows, half * 2 // GROUP]}")
    sides = ("gate_proj", "up_proj") if which == "w13" else ("down_proj",)
    each = rows // len(sides)
    for expert in range(experts):
        for number, side in enumerate(sides):
            name = f"{prefix}{expert}.{side}.weight"
            row = expert * rows + number * each
            piece = Piece("channels", (weight, scale), 0, each * half * 2, row, f"{name}_scale", form)
            yield Target(name, "F8_E4M3", (each, half * 2), [piece])
            yield Target(f"{name}_scale", "F32", (each, 1), ())
