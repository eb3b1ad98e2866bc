"""The repack of Quark's release: right to the byte, whole or not there, and one clear line for whatever can not be repacked."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

import crashing
from benchmarks.quarktrees import PREFIX, QUARK, Shape, write_json, write_quark
from ckpt import dequantize, engine, verify
from ckpt.errors import CheckpointError
from ckpt.headers import make_header, read_header
from repack_quark_mxfp4 import main
from support import ROOT

TINY = ROOT / "tests/data/quark-tiny"
SOURCE = ROOT / "tests/data/quark-tiny-bf16-source"
TOOL = ROOT / "ports/kimi-k2-7/convert/repack_quark_mxfp4.py"


def run(src: Path, dst: Path, *arguments: str) -> int:
    return main(["--src", str(src), "--dst", str(dst), *arguments])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint of several layers, whose tensors are spread over the shards."""
    return write_quark(tmp_path_factory.mktemp("quark") / "source", Shape())


@pytest.fixture(scope="module")
def goal(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What it becomes."""
    made = tmp_path_factory.mktemp("goal") / "made"
    assert run(source, made, "--verify") == 0
    return contents(made)


@pytest.fixture
def copy(source: Path, tmp_path: Path) -> Path:
    shutil.copytree(source, tmp_path / "source")
    return tmp_path / "source"


# --- right -----------------------------------------------------------------------------------------------------------


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
    """The fused layout, dequantized, is the BF16 model to within half a step of E2M1: no row, half or expert is in another's place."""
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


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            found.update({name: opened.get_tensor(name) for name in opened.keys()})  # noqa: SIM118
    return found


def mxfp4(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """OCP MX 1.0, written with torch alone."""
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    low, high = values[(codes & 15).long()], values[(codes >> 4).long()]
    numbers = torch.stack([low, high], -1).reshape(codes.shape[0], -1)
    return (numbers * torch.ldexp(torch.ones(scales.shape), scales.long() - 127).repeat_interleave(32, 1)).bfloat16()


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


# --- told --------------------------------------------------------------------------------------------------------------


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


# --- what it survives ------------------------------------------------------------------------------------------------

STEPS = ("open", "pwrite", "copy_file_range", "posix_fallocate", "fdatasync", "fsync", "replace", "unlink", "mkdir")


def loadable(folder: Path) -> bool:
    """Whether anything would take a folder for a checkpoint."""
    return (folder / "config.json").exists()


def test_killed_at_steps_all_along(source: Path, tmp_path: Path, goal: dict[str, bytes]) -> None:
    at, seen = 1, 0
    while True:
        made = tmp_path / f"made{at}"
        code = crashing.interrupted(lambda made=made: run(source, made, "--jobs", "1"), at, crashing.killed, STEPS)  # type: ignore[misc]
        if code is None:
            break
        assert code == -signal.SIGKILL
        assert not loadable(made) or contents(made).keys() >= goal.keys(), f"step {at}"
        assert run(source, made, "--verify") == 0, f"step {at}"
        assert {name: content for name, content in contents(made).items() if not name.endswith(".partial")} == goal, f"step {at}"
        shutil.rmtree(made)
        seen += 1
        at += 1 if at < 30 else 3
    assert seen > 40


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_error_at_steps_all_along(source: Path, tmp_path: Path, goal: dict[str, bytes], number: int) -> None:
    def broken() -> None:
        raise OSError(number, os.strerror(number))

    at, codes = 1, []
    while True:
        made = tmp_path / f"made{at}"
        code = crashing.interrupted(lambda made=made: run(source, made, "--jobs", "2"), at, broken, STEPS)  # type: ignore[misc]
        if code is None:
            break
        codes.append(code)
        assert code == 0 or not loadable(made) or contents(made).keys() >= goal.keys()
        assert run(source, made, "--verify") == 0, f"step {at}"
        assert contents(made) == goal, f"step {at}"
        shutil.rmtree(made)
        at += 3
    assert set(codes) <= {0, 1} and 1 in codes


def test_killed_in_earnest(source: Path, tmp_path: Path, goal: dict[str, bytes]) -> None:
    made = tmp_path / "made"
    for delay in (0.05, 0.15, 0.2, 0.25, 0.3):
        process = subprocess.Popen(
            [sys.executable, TOOL, "--src", source, "--dst", made], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        timer = threading.Timer(delay, process.kill)
        timer.start()
        process.wait()
        timer.cancel()
    assert run(source, made, "--verify") == 0
    assert {name: content for name, content in contents(made).items() if not name.endswith(".partial")} == goal


@pytest.mark.parametrize("number", [errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP])
def test_where_the_kernel_can_not_copy(
    source: Path, tmp_path: Path, goal: dict[str, bytes], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "copy_file_range", refuses)
    monkeypatch.setattr(engine, "CHUNK", 700)
    assert run(source, tmp_path / "made") == 0
    assert contents(tmp_path / "made") == goal


def test_to_another_file_system(source: Path, goal: dict[str, bytes]) -> None:
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK) or shm.stat().st_dev == source.stat().st_dev:
        pytest.skip("there is no other file system to write to")
    made = shm / f"repack-{os.getpid()}"
    try:
        assert run(source, made, "--verify") == 0
        assert contents(made) == goal
    finally:
        shutil.rmtree(made, ignore_errors=True)


def test_a_snapshot_of_links_that_can_only_be_read(source: Path, tmp_path: Path, goal: dict[str, bytes]) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots/main"
    snapshot.mkdir(parents=True)
    shutil.copytree(source, blobs)
    for path in blobs.rglob("*"):
        if path.is_file():
            path.chmod(0o444)
            (snapshot / path.relative_to(blobs)).parent.mkdir(exist_ok=True)
            (snapshot / path.relative_to(blobs)).symlink_to(path)
    assert run(snapshot, tmp_path / "made", "--verify") == 0
    assert not any(path.is_symlink() for path in (tmp_path / "made").rglob("*"))
    assert {**contents(tmp_path / "made"), "conversion.json": b""} == {**goal, "conversion.json": b""}


def test_two_runs_on_one_folder(source: Path, tmp_path: Path, goal: dict[str, bytes]) -> None:
    made = tmp_path / "made"
    started = [
        subprocess.Popen([sys.executable, TOOL, "--src", source, "--dst", made], stderr=subprocess.PIPE, text=True)
        for _ in range(5)
    ]
    ends = [(process.communicate()[1], process.returncode) for process in started]
    assert any(code == 0 for _, code in ends)
    assert all(code == 0 or "another run is at work here" in said for said, code in ends)
    assert contents(made) == goal


# --- what can not be repacked ------------------------------------------------------------------------------------------


def refused(capsys: pytest.CaptureFixture[str], src: Path, dst: Path, *said: str) -> None:
    """One line, exit 1, and nothing written."""
    before = contents(dst) if dst.exists() else None
    capsys.readouterr()
    assert run(src, dst) == 1
    out = capsys.readouterr().err
    assert out.count("\n") == 1 and out.startswith("repack_quark_mxfp4.py: "), out
    assert all(part in out for part in said), out
    assert (contents(dst) if dst.exists() else None) == before


def config_with(copy: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads((copy / "config.json").read_text())
    change(data)
    write_json(copy / "config.json", data)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.pop("quantization_config"), "quant_method is None, not 'quark': this is no release made with AMD Quark"),
        (lambda c: c["quantization_config"].update(quant_method="fp8"), "quant_method is 'fp8', not 'quark'"),
        (lambda c: c["quantization_config"].update(quant_method="gpt_oss_mxfp4"), "is in the fused layout already"),
        (lambda c: c["quantization_config"].update(global_quant_config=None), "weight.dtype is None, not 'fp4'"),
        (lambda c: c["quantization_config"]["global_quant_config"]["weight"].update(group_size=16), "group_size is 16, not 32"),
        (lambda c: c["quantization_config"]["export"].update(weight_format="fake_quantized"), "not 'real_quantized'"),
        (lambda c: c["text_config"].update(n_routed_experts=5), "experts.4.gate_proj.weight is missing"),
        (lambda c: c["text_config"].update(n_routed_experts=3), "experts.3 is one too many: config.json says 3 layers of 3 experts"),
        (lambda c: c["text_config"].update(num_hidden_layers=4), "layers.3.mlp.experts.0.gate_proj.weight is missing"),
        (lambda c: c["text_config"].update(num_hidden_layers=2), "is one too many"),
        (lambda c: c["text_config"].update(num_hidden_layers="3"), "is no count"),
        (lambda c: c.update(text_config=3), "text_config is no mapping"),
    ],
)  # fmt: skip
def test_a_configuration_of_something_else(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], object], said: str
) -> None:
    config_with(copy, change)
    refused(capsys, copy, tmp_path / "made", said)


def edit_header(copy: Path, change: Callable[[dict[str, Any]], object], shard: int = 1) -> Path:
    """Change the header of a shard, and leave its data."""
    path = sorted(copy.glob("*.safetensors"))[shard]
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    return path


NORM, EXPERT = f"{PREFIX}1.input_layernorm.weight", f"{PREFIX}1.mlp.experts.0.down_proj.weight"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda h: h[NORM].update(dtype="F4"), "is of dtype 'F4', which is not known here"),
        (lambda h: h[NORM].update(shape=[65]), "which is another number of bytes"),
        (lambda h: h[NORM].update(shape=[-64]), "has no shape and offsets that are whole numbers"),
        (lambda h: h[NORM].update(data_offsets=[0]), "which is another number of bytes"),
        (lambda h: h.update({NORM: 3}), "has no shape and offsets"),
        (lambda h: h.pop(NORM), "leaves a hole behind another tensor"),
        (lambda h: h.update(twin=h[NORM]), "overlaps another tensor"),
        (lambda h: h.update({EXPERT.replace("down_proj.weight", "down_proj.qweight"): h.pop(EXPERT)}), "by the index is nowhere"),
    ],
)  # fmt: skip
def test_a_header_that_can_not_be(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], object], said: str
) -> None:
    path = edit_header(copy, change)
    refused(capsys, copy, tmp_path / "made", str(path), said)


def rename(copy: Path, old: str, new: str) -> None:
    """Give a tensor another name, in its shard and in the index."""
    index = json.loads((copy / "model.safetensors.index.json").read_text())
    shards = sorted(path.name for path in copy.glob("*.safetensors"))
    edit_header(copy, lambda header: header.update({new: header.pop(old)}), shards.index(index["weight_map"][old]))
    index["weight_map"][new] = index["weight_map"].pop(old)
    write_json(copy / "model.safetensors.index.json", index)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (EXPERT, EXPERT.replace(".weight", ".qweight"), "a name that Quark 0.12 does not give: this is the release of another version"),
        (EXPERT, f"{EXPERT}_quantizer.scale", "a name that Quark 0.12 does not give"),
        (EXPERT, f"{PREFIX}1.mlp.expert.0.down_proj.weight", "expert.0.down_proj.weight is U8, and its weight_scale is not there"),
        (f"{PREFIX}1.self_attn.o_proj.weight_scale", f"{PREFIX}1.self_attn.o_proj.scales", "o_proj.weight is F8_E4M3, and its weight_scale"),
        (f"{PREFIX}1.self_attn.o_proj.weight", f"{PREFIX}1.self_attn.q_proj.weight", "is the scale of a weight that is not there"),
        (EXPERT, EXPERT.replace("language_model", "other"), "experts of more than one model"),
    ],
)  # fmt: skip
def test_names_of_something_else(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    rename(copy, old, new)
    if "weight is U8" in said:
        said = "experts.0.down_proj.weight is missing"
    refused(capsys, copy, tmp_path / "made", said)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (Shape(extra=(("language_model.model.x.zero_point", "F32", (2,)),)), "a name that Quark 0.12 does not give"),
        (Shape(extra=(("language_model.model.x.weight", "F8_E5M2", (2, 2)),)), "is F8_E5M2, and its weight_scale is not there"),
        (Shape(extra=(("x.weight", "F8_E4M3", (2, 2)), ("x.weight_scale", "F32", ()))), "x.weight_scale is F32 [], which does not fit"),
        (Shape(extra=(("x.weight", "U8", (2, 16)), ("x.weight_scale", "U8", (1, 2)))), "x.weight_scale is U8 [1, 2], which does not fit"),
        (Shape(extra=(("x.weight", "BF16", (2, 16)), ("x.weight_scale", "U8", (2, 1)))), "not a matrix of U8 or F8_E4M3"),
    ],
)  # fmt: skip
def test_tensors_of_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str], shape: Shape, said: str) -> None:
    refused(capsys, write_quark(tmp_path / "source", shape), tmp_path / "made", said)


def test_shards_that_are_not_whole(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "made"
    shard = sorted(copy.glob("*.safetensors"))[1]
    whole = shard.read_bytes()
    for content, said in (
        (whole[:-1], "cut off, 1 bytes are missing: fetch it again"),
        (whole + b"\0", "1 bytes too many: fetch it again"),
        (whole[:100], "is cut off within its header"),
        (b"", "is no safetensors file"),
        (b"\xff" * 64, "is no safetensors file"),
        (whole[:8] + b"[" + whole[9:], "the header is not JSON"),
        (whole[:8] + b'"' + whole[9:], "the header is not JSON"),
    ):
        shard.write_bytes(content)
        refused(capsys, copy, made, str(shard), said)
    shard.unlink()
    refused(capsys, copy, made, str(shard), "the index names this shard, and it is not there: fetch it")
    shard.write_bytes(whole)
    shutil.copy(shard, copy / "extra.safetensors")
    refused(capsys, copy, made, "the index does not name this shard")
    index = copy / "model.safetensors.index.json"
    (copy / "extra.safetensors").unlink()
    placed = json.loads(index.read_text())["weight_map"]
    for change, said in (
        ({**placed, "ghost": shard.name}, "has no ghost, which the index says is in it"),
        ({name: where for name, where in placed.items() if name != NORM}, "which by the index is nowhere"),
        ({**placed, NORM: "model-00004-of-000004.safetensors"}, "which by the index is in model-00004"),
        ([], "has no weight_map of tensors to shards"),
    ):
        write_json(index, {"weight_map": change})
        refused(capsys, copy, made, said)
    index.unlink()
    refused(capsys, copy, made, "holds 4 shards and no model.safetensors.index.json")


def test_a_tensor_in_two_shards(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = sorted(copy.glob("*.safetensors"))[2]
    raw = other.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    end = len(raw) - 8 - length
    header["language_model.model.embed_tokens.weight"] = {"dtype": "U8", "shape": [1], "data_offsets": [end, end + 1]}
    text = json.dumps(header).encode()
    other.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :] + b"\0")
    refused(capsys, copy, tmp_path / "made", "stands in model-00001-of-000004.safetensors as well")


def test_a_key_that_stands_twice(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sorted(copy.glob("*.safetensors"))[1]
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    text = raw[8 : 8 + length].replace(b"{", b'{"__metadata__": {}, "__metadata__": {}, ', 1)
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    refused(capsys, copy, tmp_path / "made", "'__metadata__' stands twice in the header")


def poke(folder: Path, name: str, offset: int, value: int) -> None:
    """Change one byte of a tensor."""
    for file in folder.glob("*.safetensors"):
        if tensor := read_header(file).get(name):
            with file.open("r+b") as opened:
                opened.seek(tensor.start + offset)
                opened.write(bytes([value]))
            return
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("name", "offset", "value", "said"),
    [
        (f"{PREFIX}1.mlp.experts.2.up_proj.weight_scale", 5, 255, "experts.2.up_proj.weight_scale: scale 5 is byte 255, which is no number"),
        (f"{PREFIX}0.mlp.gate_proj.weight_scale", 3, 255, "gate_proj.weight_scale: scale 3 is byte 255"),
        (f"{PREFIX}0.mlp.gate_proj.weight_scale", 0, 254, "gate_proj.weight: row 0, column"),
        (f"{PREFIX}0.self_attn.o_proj.weight", 70, 0x7F, "o_proj.weight (rows from 0): row 1, column 6 is not a finite number"),
    ],
)  # fmt: skip
def test_numbers_that_are_none(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, offset: int, value: int, said: str
) -> None:
    """Found while it is written: the folder then looks like no checkpoint, and the same command goes on when that is mended."""
    poke(copy, name, offset, value)
    made = tmp_path / "made"
    assert run(copy, made) == 1
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert not loadable(made) and not list(made.glob("*.partial"))


def test_places_that_can_not_be(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "link").symlink_to(copy)
    for made in (copy, copy / "made", tmp_path, tmp_path / "link", tmp_path / "link/made", copy / "tokenizer"):
        refused(capsys, copy, made, "is, holds, or lies in the source")
    refused(capsys, copy, tmp_path / "none/made", "none: no such folder")
    refused(capsys, tmp_path / "none", tmp_path / "made", "none: no such folder")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/a.txt").write_text("mine")
    refused(capsys, copy, tmp_path / "full", "holds other files, as a.txt: name an empty or new folder")
    (tmp_path / "file").write_text("")
    refused(capsys, copy, tmp_path / "file", "file exists")
    (copy / "LICENSE").unlink()
    refused(capsys, copy, tmp_path / "made", "has no LICENSE, which goes with the weights")


def test_another_source_into_the_same_folder(
    copy: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(copy, tmp_path / "made") == 0
    os.utime(min(copy.glob("*.safetensors")))
    refused(capsys, copy, tmp_path / "made", "was begun from another source, or the source has changed since")


def test_too_little_space(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    assert run(source, tmp_path / "made") == 1
    assert "GB are needed and 0.0 GB are free" in capsys.readouterr().err
    assert not list((tmp_path / "made").glob("*.safetensors"))


# --- verification ------------------------------------------------------------------------------------------------------


def test_every_tensor_is_compared(
    source: Path, tmp_path: Path, goal: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    """One bit anywhere, in any tensor, is found, and named by tensor and offset."""
    made = tmp_path / "made"
    assert run(source, made) == 0
    random = np.random.default_rng(1)
    for file in sorted(made.glob("*.safetensors")):
        for name, tensor in read_header(file).items():
            offset = int(random.integers(tensor.size))
            old = file.read_bytes()[tensor.start + offset]
            poke(made, name, offset, old ^ 1)
            with pytest.raises(verify.Different) as caught:
                verify.verify(source, made, 2)
            said = str(caught.value)
            place = offset // 2 * 2 if tensor.dtype == "BF16" and "row" in said else offset
            assert f"{name}" in said and f"byte {place} of the tensor" in said, said
            if ".experts.w" in name:
                assert f"expert {offset // (tensor.size // 4)}," in said
            poke(made, name, offset, old)
    verify.verify(source, made, 2)
    capsys.readouterr()
    poke(made, name, offset, old ^ 1)
    assert run(source, made, "--verify") == 1
    out, err = capsys.readouterr()
    assert "VERIFY" not in out + err and name in err


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("LICENSE", "Do", "Don't", "LICENSE: is not what"),
        ("tokenizer/vocab.txt", "a", "c", "vocab.txt: is not what"),
        ("config.json", '"architectures"', '"architecture"', "config.json: differs in more than its quantization_config"),
        ("config.json", "gpt_oss_mxfp4", "mxfp4", "config.json: differs in more"),
        ("model.safetensors.index.json", "model-00002", "model-00001", "the index does not say where the tensors are"),
        ("model.safetensors.index.json", '"total_size": ', '"total_size": 1', "the index says"),
    ],
)
def test_the_other_files_are_compared(source: Path, tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    assert run(source, tmp_path / "made") == 0
    path = tmp_path / "made" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(verify.Different, match=said):
        verify.verify(source, tmp_path / "made", 1)


def test_a_missing_and_a_foreign_tensor(source: Path, tmp_path: Path) -> None:
    assert run(source, tmp_path / "made") == 0
    last = max((tmp_path / "made").glob("*.safetensors"))
    last.rename(tmp_path / "away")
    with pytest.raises(
        verify.Different, match=r"lm_head.weight is missing|embed_tokens.weight is missing|the index does not say"
    ):
        verify.verify(source, tmp_path / "made", 1)
    shutil.copy(tmp_path / "away", last)
    header, _ = make_header([("ghost", "U8", (1,))], {})
    (tmp_path / "made/ghost.safetensors").write_bytes(header + b"\0")
    with pytest.raises(verify.Different, match="ghost comes from nothing in the source"):
        verify.verify(source, tmp_path / "made", 1)


# --- fuzz ----------------------------------------------------------------------------------------------------------------


def test_mutated_headers_and_indexes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback and no hang; what is accepted is converted right.  ``FUZZ=10000`` runs as many mutations."""
    source = write_quark(tmp_path / "source", Shape(layers=2, experts=2, hidden=32, moe=32, wide=32, rank=32, vocabulary=2))
    files = [*sorted(source.glob("*.safetensors")), source / "model.safetensors.index.json", source / "config.json"]
    fresh = {file: file.read_bytes() for file in files}
    random = np.random.default_rng(int(os.environ.get("FUZZ_SEED", "0")))
    accepted = 0
    for round_ in range(int(os.environ.get("FUZZ", "400"))):
        file = files[int(random.integers(len(files)))]
        raw = bytearray(fresh[file])
        end = 8 + int.from_bytes(raw[:8], "little") if file.suffix == ".safetensors" else len(raw)
        for _ in range(int(random.integers(1, 4))):
            at = int(random.integers(end))
            match int(random.integers(5)):
                case 0:
                    raw[at] = int(random.integers(256))
                case 1:
                    raw[at : at + 1] = bytes(random.integers(32, 127, int(random.integers(4))).astype(np.uint8))
                case 2:
                    raw[at] ^= 1 << int(random.integers(8))
                case 3:
                    raw = raw[: at + int(random.integers(len(raw) - at + 1))]
                    end = min(end, max(len(raw), 1))
                case 4:
                    raw[at:at] = raw[at : at + int(random.integers(1, 40))]
            if not raw:
                break
            end = min(end, len(raw))
        file.write_bytes(bytes(raw))
        made = tmp_path / "made"
        code = run(source, made, "--jobs", "1", "--verify")
        out, err = capsys.readouterr()
        assert code in (0, 1), round_
        assert (code == 0) == out.endswith("VERIFY_OK\n")
        if code:
            assert "VERIFY" not in out + err
            assert err.splitlines()[-1].startswith("repack_quark_mxfp4.py: "), err
        accepted += code == 0
        shutil.rmtree(made, ignore_errors=True)
        file.write_bytes(fresh[file])
    assert accepted < 300


def test_the_fixture_is_the_exporter_s() -> None:
    config = json.loads((TINY / "config.json").read_text())["quantization_config"]
    assert config["version"] == "0.12.post1" and config["quant_method"] == QUARK["quant_method"]
