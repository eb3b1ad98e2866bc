"""The repack of Quark's release: right to the byte, and told as it goes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from benchmarks.quarktrees import PREFIX, QUARK, Shape, write_quark
from checkpoints import (
    SOURCE,
    TINY,
    TOOL,
    contents,
    mxfp4,
    run,
    tensors,
)
from ckpt import dequantize
from ckpt.errors import CheckpointError
from ckpt.headers import make_header, read_header


def test_the_release_of_quark_s_own_exporter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Loaded with safetensors and torch: experts byte for byte, everything else as torch computes it from the same bytes."""
    assert run(TINY, tmp_path / "made", "--verify") == 0
    assert capsys.readouterr().out.endswith("\nVERIFY_OK\n")
    before, after = tensors(TINY), tensors(tmp_path / "made")
    at = f"{PREFIX}1.mlp.experts."
    for fused, sides in (("w13", ("gate", "up")), ("w2", ("down",))):
        for kind in ("weight", "weight_scale"):
            experts = [[before.pop(f"{at}{expert}.{side}_proj.{kind}") for side in sides] for expert in range(4)]
            wanted = torch.stack([torch.cat(parts) for parts in experts])
            assert torch.equal(after.pop(f"{at}{fused}_{kind}"), wanted)
    for name in [name for name in before if name.endswith("weight_scale")]:
        scale, weight = before.pop(name), before.pop(name.removesuffix("_scale"))
        wanted = (weight.float() * scale[:, None]).bfloat16() if weight.dtype != torch.uint8 else mxfp4(weight, scale)
        assert torch.equal(after.pop(name.removesuffix("_scale")), wanted), name
    assert set(before) == set(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    config = json.loads((tmp_path / "made/config.json").read_text())
    assert config["quantization_config"] == {"quant_method": "gpt_oss_mxfp4"}
    assert "quantization_config" not in config["text_config"]
    assert {**json.loads((TINY / "config.json").read_text()), "quantization_config": 0} == {**config, "quantization_config": 0}


def test_the_experts_are_those_of_the_model_before_quark(tmp_path: Path) -> None:
    """The fused layout, dequantized, is the BF16 model to half a step of E2M1: no row, half or expert is in another's place."""
    assert run(TINY, tmp_path / "made") == 0
    made, model = tensors(tmp_path / "made"), tensors(SOURCE)
    at = f"{PREFIX}1.mlp.experts."
    for expert in range(4):
        w13 = mxfp4(made[f"{at}w13_weight"][expert], made[f"{at}w13_weight_scale"][expert])
        w2 = mxfp4(made[f"{at}w2_weight"][expert], made[f"{at}w2_weight_scale"][expert])
        rows = w13.shape[0] // 2
        for side, found in (("gate", w13[:rows]), ("up", w13[rows:]), ("down", w2)):
            original = model[f"{at}{expert}.{side}_proj.weight"].float()
            assert (found.float() - original).norm() <= 0.15 * original.norm(), (expert, side)


def test_every_code_with_every_scale() -> None:
    """All 256 bytes of two codes with all scales but NaN, against torch."""
    codes = np.tile(np.arange(256, dtype=np.uint8).reshape(16, 16), (255, 1))
    scales = np.repeat(np.arange(255, dtype=np.uint8), 16)[:, None]
    found = torch.from_numpy(dequantize.bf16_from_mxfp4(codes, scales).view(np.int16)).view(torch.bfloat16)
    values = mxfp4(torch.from_numpy(codes), torch.from_numpy(scales))
    assert torch.equal(found.view(torch.int16), values.view(torch.int16))


def test_every_code_of_e4m3() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    ours, torchs = torch.from_numpy(dequantize.e4m3_values()), codes.view(torch.float8_e4m3fn).float()
    assert torch.equal(ours.isnan(), torchs.isnan())
    assert torch.equal(ours.nan_to_num().view(torch.int32), torchs.nan_to_num().view(torch.int32))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
def test_fp8_with_any_scale_is_what_torch_gives(scales: list[float], seed: int) -> None:
    codes = np.random.default_rng(seed).integers(0, 256, (len(scales), 64)).astype(np.uint8)
    codes[codes & 127 == 127] = 0
    found = dequantize.bf16_from_fp8(codes, np.array(scales, np.float32))
    wanted = (torch.from_numpy(codes).view(torch.float8_e4m3fn).float() * torch.tensor(scales)[:, None]).bfloat16()
    assert torch.equal(torch.from_numpy(found.view(np.int16)), wanted.view(torch.int16))


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50))
def test_rounding_to_bf16_is_torch_s(bits: list[int]) -> None:
    values = np.array(bits, np.uint32).view(np.float32)
    values = values[np.isfinite(values)]
    wanted = torch.from_numpy(values.copy()).bfloat16().view(torch.int16)
    assert torch.equal(torch.from_numpy(dequantize.bf16_from_f32(values).view(np.int16)), wanted)


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F8_E8M0"])
def test_scales_in_other_dtypes_become_the_same_bytes(tmp_path: Path, dtype: str, goal: dict[str, bytes]) -> None:
    other = write_quark(tmp_path / "other", Shape(scale_dtype=dtype), seed=0)
    assert run(other, tmp_path / "made", "--verify") == 0
    scales = tensors(tmp_path / "made")[f"{PREFIX}1.mlp.experts.w13_weight_scale"]
    assert scales.dtype == torch.uint8
    assert 90 <= int(scales.min()) <= int(scales.max()) < 160


@pytest.mark.parametrize(("dtype", "powers"), [("F32", range(-127, 128)), ("BF16", range(-127, 128))])
def test_every_power_of_two_is_its_exponent(dtype: str, powers: range) -> None:
    values = np.ldexp(1.0, list(powers)).astype(np.float32)
    raw = values.view(np.uint8) if dtype == "F32" else (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    assert dequantize.scale_bytes(raw, dtype).tolist() == [power + 127 for power in powers]


@pytest.mark.parametrize("value", [0.0, -1.0, 3.0, math.nan, math.inf, 2.0**-130])
def test_a_scale_that_is_no_power_of_two(value: float) -> None:
    with pytest.raises(CheckpointError, match=r"no power of two|byte 255"):
        dequantize.scale_bytes(np.array([1.0, value], np.float32).view(np.uint8), "F32")


def test_one_layer_of_the_real_shapes(tmp_path: Path) -> None:
    """One of Kimi's layers, of 384 experts, but narrow; and one of two experts in full width."""
    for shape in (Shape(layers=2, experts=384, hidden=64, moe=32), Shape(layers=2, experts=2, hidden=7168, moe=2048, rank=8192)):
        name = str(shape.experts)
        assert run(write_quark(tmp_path / name, shape), tmp_path / f"{name}-made", "--verify") == 0
        fused = read_header(tmp_path / f"{name}-made/model-00002-of-00003.safetensors")
        at = f"{PREFIX}1.mlp.experts."
        assert fused[f"{at}w13_weight"].shape == (shape.experts, 2 * shape.moe, shape.hidden // 2)
        assert fused[f"{at}w2_weight_scale"].shape == (shape.experts, shape.hidden, shape.moe // 32)
        assert all(tensor.dtype in ("U8", "BF16", "F32") for tensor in fused.values())


def test_data_starts_on_a_page(goal: dict[str, bytes]) -> None:
    for name, content in goal.items():
        if name.endswith(".safetensors"):
            assert (8 + int.from_bytes(content[:8], "little")) % 4096 == 0


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=20).filter(lambda name: name != "__metadata__"), st.lists(st.integers(0, 9), max_size=3)
    )
)
def test_headers_are_read_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, shapes: dict[str, list[int]]) -> None:
    tensors_ = [(name, "BF16", tuple(shape)) for name, shape in shapes.items()]
    header, starts = make_header(tensors_, {"format": "pt"})
    path = tmp_path_factory.mktemp("h") / "x.safetensors"
    path.write_bytes(header + bytes(sum(2 * math.prod(shape) for _, _, shape in tensors_)))
    found = read_header(path)
    assert {name: (tensor.shape, tensor.start) for name, tensor in found.items()} == {
        name: (s, starts[name]) for name, _, s in tensors_
    }
    with safe_open(path, "pt") as opened:
        assert set(opened.keys()) == set(shapes)


def test_a_dry_run_writes_nothing(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(source, tmp_path / "made", "--dry-run") == 0
    out = capsys.readouterr().out
    assert "tensors in 4 files" in out and "GB free" in out and "VERIFY" not in out
    assert not (tmp_path / "made").exists()
    assert run(source, tmp_path / "made", "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["tensors_after"] == 27


def test_json_for_programs(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(source, tmp_path / "made", "--verify", "--json") == 0
    out, said = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[-1] == {"verified": True}
    progress = [json.loads(line) for line in said.splitlines()]
    assert [line["doing"] for line in progress] == ["written", "compared"]
    assert all(line["bytes"] == line["of"] for line in progress)


def test_help_and_a_missing_package(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, TOOL, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--dry-run" in done.stdout
    done = subprocess.run([sys.executable, "-S", TOOL, "--help"], capture_output=True, text=True, env={})
    assert done.returncode == 1 and done.stderr == "repack_quark_mxfp4.py: the package numpy is missing: pip install numpy\n"


def test_again_is_nothing(source: Path, tmp_path: Path, goal: dict[str, bytes]) -> None:
    made = tmp_path / "made"
    assert run(source, made) == 0
    stamps = {path.name: path.stat().st_mtime_ns for path in made.glob("*.safetensors")}
    assert run(source, made, "--jobs", "1", "--verify") == 0
    assert {path.name: path.stat().st_mtime_ns for path in made.glob("*.safetensors")} == stamps
    assert contents(made) == goal


def test_the_fixture_is_the_exporter_s() -> None:
    config = json.loads((TINY / "config.json").read_text())["quantization_config"]
    assert config["version"] == "0.12.post1" and config["quant_method"] == QUARK["quant_method"]
