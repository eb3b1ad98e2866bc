"""A fused MXFP4 checkpoint as per-channel FP8, one tensor an expert, in the form of compressed-tensors.

Names and shapes: compressed-tensors' "float-quantized" with the strategy "channel", as vLLM's loaders of experts read it:
``experts.E.gate_proj.weight`` F8_E4M3 [N, K] and ``….weight_scale`` F32 [N, 1].  Everything else is copied.  Nothing in
config.json can say which E4M3 it is, so each file's header does, as ``e4m3_largest``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ckpt.dequantize import GROUP
from ckpt.errors import CheckpointError
from ckpt.headers import Tensor
from ckpt.plan import File, Form, Piece, Plan, Target
from ckpt.quark import QUANT_METHOD, routed
from ckpt.source import CONFIG, Checkpoint

TOOL = "mxfp4_to_fp8"
_FUSED = re.compile(r"((?:.*\.)?layers\.(0|[1-9][0-9]{0,8})\.mlp\.experts\.)(w13|w2)_weight(_scale)?")


def fp8_plan(checkpoint: Checkpoint, form: Form) -> Plan:
    """The whole conversion, from the headers alone.  Raises :class:`CheckpointError`."""
    quantization = checkpoint.config.get("quantization_config")
    if not isinstance(quantization, dict) or quantization.get("quant_method") != QUANT_METHOD:
        raise CheckpointError(f"{checkpoint.folder}: quant_method is not {QUANT_METHOD!r}: give what repack_quark_mxfp4.py made")
    if isinstance(text := checkpoint.config.get("text_config", {}), dict) and text.get("quantization_config"):
        raise CheckpointError(f"{checkpoint.folder / CONFIG}: text_config says another quantization_config: remove it")
    by_file: dict[str, list[Target]] = {path.name: [] for path in checkpoint.shards}
    layers: dict[str, dict[int, Tensor]] = {"w13": {}, "w2": {}}
    for name in sorted(checkpoint.tensors):
        tensor = checkpoint.tensors[name]
        match = _FUSED.fullmatch(name)
        if match is None:
            if "mlp.experts." in name:
                raise CheckpointError(f"{tensor.path}: {name}: a name that repack_quark_mxfp4.py does not give")
            by_file[tensor.path.name].append(Target(name, tensor.dtype, tensor.shape, [Piece("copy", (tensor,), 0, tensor.size)]))
        elif not match[4]:
            layers[match[3]][int(match[2])] = tensor
            by_file[tensor.path.name] += _experts(match[1], match[3], tensor, checkpoint.tensors.get(f"{name}_scale"), form)
        elif name.removesuffix("_scale") not in checkpoint.tensors:
            raise CheckpointError(f"{tensor.path}: {name} is the scale of a weight that is not there")
    _check_whole(checkpoint, layers)
    files = [File(name, targets, {"e4m3_largest": str(form.largest)}) for name, targets in by_file.items()]
    linears = sorted(
        target.name.removesuffix(".weight")
        for file in files
        for target in file.targets
        if target.name.endswith(".weight") and target.dtype == "BF16" and len(target.shape) == 2
    )
    config = {**checkpoint.config, "quantization_config": _compressed_tensors(linears)}
    exact = f"{TOOL}, up to {form.largest}"
    # What was exact so far is what would be written if numbers may be rounded.
    tool, continues = (f"{exact}, rounded", [exact]) if form.rounds else (exact, [])
    return Plan(tool, files, config, checkpoint.others, checkpoint.folder, checkpoint.fingerprint(), continues)


def _check_whole(checkpoint: Checkpoint, found: dict[str, dict[int, Tensor]]) -> None:
    """Every layer that config.json gives routed experts has both weights, with all experts."""
    if not found["w13"] and not found["w2"]:
        raise CheckpointError(f"{checkpoint.folder}: holds no experts.w13_weight: give what repack_quark_mxfp4.py made")
    some = next(iter((found["w13"] or found["w2"]).values()))
    layers, count = routed(checkpoint, {*found["w13"], *found["w2"]}, some.shape[0])
    for which, of_layer in found.items():
        if missing := {*layers} - {*of_layer}:
            raise CheckpointError(f"{checkpoint.folder}: layer {min(missing)} has no experts.{which}_weight: a shard is missing")
        if extra := {*of_layer} - {*layers}:
            raise CheckpointError(f"{of_layer[min(extra)]}: config.json has experts in {layers.start} to {layers.stop - 1}")
        for tensor in of_layer.values():
            if tensor.shape[0] != count:
                raise CheckpointError(f"{tensor}: config.json says {count} experts")


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
