"""MXFP4 to FP8: every number kept, or a channel named; and the proof finds whatever is not kept."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from benchmarks.quarktrees import PREFIX, Shape, write_json, write_quark
from checkpoints import NORM, TINY, contents, edit_header, mxfp4, poke, tensors
from ckpt import channels
from ckpt.errors import CheckpointError
from ckpt.headers import read_header
from ckpt.plan import Form
from ckpt.reread import Different
from ckpt.validate import _HIGH as HIGH
from ckpt.validate import _LOW as LOW
from ckpt.validate import Validation
from ckpt.validate import _tables as validation_tables
from mxfp4_to_fp8 import main as convert
from repack_quark_mxfp4 import main as repack
from validate_fp8 import main as validate

W13 = f"{PREFIX}1.mlp.experts.w13_weight"
GAUDI2, E4M3FN = Form(channels.GAUDI2, rounds=False), Form(channels.E4M3FN, rounds=False)
VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


@pytest.fixture(scope="module")
def fused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fused checkpoint whose groups' powers lie close together."""
    folder = tmp_path_factory.mktemp("fused")
    assert repack(["--src", str(write_quark(folder / "quark", Shape(powers=(120, 130)))), "--dst", str(folder / "made")]) == 0
    return folder / "made"


@pytest.fixture(scope="module")
def made(fused: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in FP8."""
    folder = tmp_path_factory.mktemp("fp8") / "made"
    assert convert(["--src", str(fused), "--dst", str(folder)]) == 0
    return folder


def numbers(codes: Any, powers: Any) -> Any:
    """The numbers of MXFP4 codes, exactly, in float64."""
    four = np.stack([codes & 15, codes >> 4], -1).reshape(codes.shape[0], -1)
    return VALUES[four] * np.repeat(np.ldexp(1.0, powers.astype(int) - 127), 32, axis=1)


def of_fp8(codes: Any, scales: Any) -> Any:
    return torch.from_numpy(codes).view(torch.float8_e4m3fn).double().numpy() * scales.astype(np.float64)[:, None]


# --- every number ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "spread"), [(GAUDI2, 13), (E4M3FN, 14)])
def test_every_pair_of_codes_within_the_spread(form: Form, spread: int) -> None:
    """All 256 bytes, in groups of every distance of powers up to the spread that is always exact, anywhere in the range."""
    codes = np.tile(np.arange(256, dtype=np.uint8).reshape(16, 16), (1, 1)).reshape(1, 16, 16)
    for base in (20, 127, 230):
        for distance in range(spread + 1):
            powers = np.array([[base, base + distance]], np.uint8).repeat(256, 0)
            both = np.concatenate([codes.repeat(16, 0).reshape(256, 16), codes.reshape(16, 16).repeat(16, 0)], axis=1)
            found, scales, rounded = channels.fp8_from_mxfp4(both, powers, form)
            wanted = numbers(both, powers)
            assert rounded == 0
            assert np.array_equal(of_fp8(found, scales), wanted)
            assert np.array_equal(np.signbit(of_fp8(found, scales)), np.signbit(wanted))
            assert np.array_equal(np.frexp(scales)[0], np.full(256, 0.5)), "powers of two"
            if form is GAUDI2:
                assert (found & 0x7F).max() <= 0x77, "codes that Gaudi 2 reads otherwise"


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.integers(0, 254), min_size=2, max_size=4), st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([240, 448])
)
def test_refused_is_what_no_scale_makes_exact(powers: list[int], seed: int, sparse: bool, largest: int) -> None:
    random = np.random.default_rng(seed)
    codes = random.integers(0, 256, (1, 16 * len(powers))).astype(np.uint8)
    if sparse:
        codes[random.random(codes.shape) < 0.8] = 0
    scale = np.array([powers], np.uint8)
    wanted = numbers(codes, scale)
    try:
        found, scales, rounded = channels.fp8_from_mxfp4(codes, scale, Form(largest, rounds=False))
    except CheckpointError:
        for shift in range(-160, 140):
            held = np.ldexp(wanted, -shift)
            rounded_ = torch.from_numpy(held).to(torch.float8_e4m3fn).double().numpy() if np.abs(held).max() <= largest else None
            assert rounded_ is None or not np.array_equal(rounded_, held), f"2^{shift} would have done"
    else:
        assert rounded == 0
        assert np.array_equal(of_fp8(found, scales), wanted)
        assert np.abs(of_fp8(found, np.ones(1))).max() <= largest


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(60, 200), min_size=2, max_size=4), st.integers(0, 2**32 - 1))
def test_what_is_rounded_is_rounded_to_the_nearest_and_counted(powers: list[int], seed: int) -> None:
    codes = np.random.default_rng(seed).integers(0, 256, (1, 16 * len(powers))).astype(np.uint8)
    scale = np.array([powers], np.uint8)
    found, scales, rounded = channels.fp8_from_mxfp4(codes, scale, Form(448, rounds=True))
    wanted = numbers(codes, scale) / scales.astype(np.float64)[:, None]
    nearest = torch.from_numpy(wanted).to(torch.float8_e4m3fn)
    assert np.array_equal(found, nearest.view(torch.uint8).numpy())
    assert rounded == int((nearest.double().numpy() != wanted).sum())


def test_nothing_but_zeros() -> None:
    """An all-zero group carries the power 1, which says nothing; a channel of nothing has the scale 1."""
    codes = np.zeros((2, 32), np.uint8)
    codes[1, 16:] = 0x21
    found, scales, rounded = channels.fp8_from_mxfp4(codes, np.array([[1, 1], [1, 127]], np.uint8), GAUDI2)
    assert rounded == 0 and scales[0] == 1
    assert np.array_equal(of_fp8(found, scales), numbers(codes, np.array([[1, 1], [1, 127]], np.uint8)))


# --- whole checkpoints -------------------------------------------------------------------------------------------------


def test_converted_and_proven(fused: Path, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert validate(["--mxfp4", str(fused), "--fp8", str(made)]) == 0
    assert capsys.readouterr().out == "VALIDATE_OK\n"
    before, after = tensors(fused), tensors(made)
    at = f"{PREFIX}2.mlp.experts."
    for expert in range(4):
        for side, rows in (("gate", slice(0, 32)), ("up", slice(32, 64)), ("down", slice(0, 64))):
            which = "w2" if side == "down" else "w13"
            wanted = mxfp4(before[f"{at}{which}_weight"][expert][rows], before[f"{at}{which}_weight_scale"][expert][rows])
            weight, scale = after[f"{at}{expert}.{side}_proj.weight"], after[f"{at}{expert}.{side}_proj.weight_scale"]
            assert weight.dtype == torch.float8_e4m3fn and scale.shape == (weight.shape[0], 1)
            assert torch.equal((weight.float() * scale).bfloat16(), wanted)
    config = json.loads((made / "config.json").read_text())["quantization_config"]
    assert config["quant_method"] == "compressed-tensors"
    assert f"{PREFIX}0.mlp.gate_proj" in config["ignore"] and "language_model.lm_head" in config["ignore"]
    assert not any(".experts." in name and "shared" not in name for name in config["ignore"])


def test_the_other_format(fused: Path, tmp_path: Path) -> None:
    assert convert(["--src", str(fused), "--dst", str(tmp_path / "made"), "--format", "e4m3fn"]) == 0
    both = ["--mxfp4", str(fused), "--fp8", str(tmp_path / "made")]
    assert validate([*both, "--format", "e4m3fn"]) == 0
    with safe_open(next((tmp_path / "made").glob("*-00002-*")), "pt") as opened:
        assert opened.metadata() == {"format": "pt", "e4m3_largest": "448"}


def test_codes_beyond_gaudi_s_range_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint for one E4M3 does not pass for the other, though no byte of config.json tells them apart."""
    quark = write_quark(tmp_path / "quark", Shape(powers=(127, 128)))
    assert repack(["--src", str(quark), "--dst", str(tmp_path / "fused")]) == 0
    assert convert(["--src", str(tmp_path / "fused"), "--dst", str(tmp_path / "made"), "--format", "e4m3fn"]) == 0
    capsys.readouterr()
    both = ["--mxfp4", str(tmp_path / "fused"), "--fp8", str(tmp_path / "made")]
    assert validate(both) == 1
    out, err = capsys.readouterr()
    assert "VALIDATE" not in out + err and re.search("code 0x[7f][89a-e] is above 240: remove this file", err)
    assert validate([*both, "--format", "e4m3fn"]) == 0


def test_the_exporter_s_extremes_are_refused_or_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Quark's own export of a channel with 1e-38 beside 0.05, and of one with 3e38."""
    assert repack(["--src", str(TINY), "--dst", str(tmp_path / "fused")]) == 0
    capsys.readouterr()
    assert convert(["--src", str(tmp_path / "fused"), "--dst", str(tmp_path / "made")]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "layers.1.mlp.experts.w13_weight, expert 0: channel 1 is not exact: its groups' powers span 119, and 32 of 128" in said
    assert not (tmp_path / "made/config.json").exists()
    shutil.rmtree(tmp_path / "made")
    assert convert(["--src", str(tmp_path / "fused"), "--dst", str(tmp_path / "made"), "--allow-underflow"]) == 0
    told = capsys.readouterr().out
    assert "experts.0.gate_proj.weight: 122 elements rounded" in told
    [total] = re.findall(r"^([0-9,]+) elements rounded in \d+ tensors$", told, re.MULTILINE)
    both = ["--mxfp4", str(tmp_path / "fused"), "--fp8", str(tmp_path / "made")]
    assert validate(both) == 1
    out, err = capsys.readouterr()
    assert "VALIDATE" not in out + err and "experts.0.gate_proj.weight, byte 128 of the tensor (channel 1, column 0)" in err
    assert validate([*both, "--allow-underflow"]) == 0
    assert capsys.readouterr().out == f"every number is the nearest; rounded: {total}\n"


def test_rounding_goes_on_from_where_exactness_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The advice to allow it works in the same folder; what earlier runs rounded is in the count; the way back is refused."""
    assert repack(["--src", str(TINY), "--dst", str(tmp_path / "fused")]) == 0
    folders = ["--src", str(tmp_path / "fused"), "--dst", str(tmp_path / "made")]
    assert convert(["--src", str(tmp_path / "fused"), "--dst", str(tmp_path / "whole"), "--allow-underflow"]) == 0
    wanted = capsys.readouterr().out.splitlines()[-1]
    assert convert(folders) == 1
    assert "--allow-underflow" in capsys.readouterr().err
    assert convert([*folders, "--allow-underflow"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == wanted
    next((tmp_path / "made").glob("*-00001-*")).unlink()
    assert convert([*folders, "--allow-underflow"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == wanted
    assert contents(tmp_path / "made") == contents(tmp_path / "whole")
    assert convert(folders) == 1
    assert "was begun by mxfp4_to_fp8, up to 240, rounded, and this is mxfp4_to_fp8, up to 240" in capsys.readouterr().err


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(60, 200), min_size=2, max_size=4), st.integers(0, 2**32 - 1), st.sampled_from([240, 448]), st.booleans()
)
def test_the_proof_agrees_with_torch(powers: list[int], seed: int, largest: int, near: bool) -> None:
    """Whatever the powers, the proof's own tables take the nearest E4M3 number, and count what is not the same."""
    codes = np.random.default_rng(seed).integers(0, 256, (1, 16 * len(powers))).astype(np.uint8)
    exponents = np.array([powers if not near else [120 + power % 4 for power in powers]], np.int32) - 127
    shift = int(np.ceil(np.log2(np.abs(numbers(codes, exponents + 127)).max() / largest)))
    held = numbers(codes, exponents + 127) / 2.0**shift
    nearest = torch.from_numpy(held).to(torch.float8_e4m3fn)
    pairs, inexact = validation_tables()
    index = (np.clip(exponents - shift, LOW, HIGH) - LOW)[:, :, None] * 256 + codes.reshape(1, len(powers), 16)
    assert np.array_equal(pairs[index].view(np.uint8).reshape(-1), nearest.view(torch.uint8).numpy().reshape(-1))
    assert int(inexact[index].sum()) == int((nearest.double().numpy() != held).sum())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda made: (made / "LICENSE").unlink(), "LICENSE: is not what"),
        (lambda made: (made / "tokenizer/vocab.txt").write_text("a\nc\n"), "vocab.txt: is not what"),
        (lambda made: edit_config(made, lambda c: c.pop("quantization_config")), "config.json: is not the source's"),
        (lambda made: edit_config(made, lambda c: c["quantization_config"].update(ignore=[])), "config.json: is not the source's"),
        (lambda made: edit_config(made, lambda c: c["text_config"].update(num_hidden_layers=2)), "config.json: is not the source's"),
        (lambda made: append(made, b"\0"), "its tensors end at byte"),
        (lambda made: edit_header(made, lambda h: h.update(__metadata__={"format": []})), "__metadata__ is no mapping of texts"),
        (lambda made: edit_header(made, lambda h: shift(h, 2)), "another tensor"),
        (lambda made: edit_header(made, lambda h: h[NORM].update(shape=[2.0, 32])), "a shape or offsets that are no sizes"),
        (lambda made: edit_header(made, lambda h: h[NORM].update(shape=[2**61] * 300_000)), "takes 128 bytes for BF16"),
        (lambda made: edit_header(made, lambda h: h[NORM].update(dtype="F4")), "'F4' is not there or not known"),
        (lambda made: edit_header(made, lambda h: h[NORM].update(data_offsets="ab")), "can not be understood"),
        (lambda made: edit_header(made, lambda h: h[NORM].update(data_offsets=3)), "can not be understood"),
        (lambda made: edit_header(made, lambda h: h.update({NORM: "x"})), "can not be understood"),
        (lambda made: twice(made / "config.json"), "'architectures' stands twice"),
        (lambda made: twice(made / "model.safetensors.index.json"), "'metadata' stands twice"),
        (lambda made: next(made.glob("*-00002-*")).write_bytes(b"\0\0\0\xb0\0\0\0\0{}"), "a header of 2952790016 bytes"),
        (lambda made: pipe(next(made.glob("*-00002-*"))), "is no regular file"),
    ],
)  # fmt: skip
def test_what_is_no_result_does_not_validate(
    fused: Path, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], object], said: str
) -> None:
    shutil.copytree(made, tmp_path / "made")
    change(tmp_path / "made")
    capsys.readouterr()
    assert validate(["--mxfp4", str(fused), "--fp8", str(tmp_path / "made")]) == 1
    out, err = capsys.readouterr()
    assert "VALIDATE" not in out + err and said in err and err.count("\n") == 1


def edit_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    write_json(folder / "config.json", config)


def append(folder: Path, content: bytes) -> None:
    with next(folder.glob("*-00002-*")).open("ab") as file:
        file.write(content)


def shift(header: dict[str, Any], count: int) -> None:
    """The last tensor begins earlier than the one before it ends."""
    last = max((name for name in header if name != "__metadata__"), key=lambda name: header[name]["data_offsets"])
    header[last]["data_offsets"] = [offset - count for offset in header[last]["data_offsets"]]


def twice(path: Path) -> None:
    """The first key of a JSON mapping, a second time."""
    text = path.read_text()
    key = next(iter(json.loads(text)))
    path.write_text(text.replace("{", f'{{"{key}": 1,', 1))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda h: h[W13].update(dtype="I8"), "are no fused experts"),
        (lambda h: h[W13].update(shape=[64, 4, 32]), "are no fused experts"),
        (lambda h: h[W13].update(shape=[4 * 64 * 32]), "are no fused experts"),
        (lambda h: h.update({W13.replace("w13", "w3"): h.pop(W13)}), "w13_weight is missing"),
    ],
)
def test_a_source_that_is_none(
    fused: Path,
    made: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[dict[str, Any]], object],
    said: str,
) -> None:
    shutil.copytree(fused, tmp_path / "fused")
    edit_header(tmp_path / "fused", change)
    assert validate(["--mxfp4", str(tmp_path / "fused"), "--fp8", str(made)]) == 1
    assert said in capsys.readouterr().err
    assert convert(["--src", str(tmp_path / "fused"), "--dst", str(tmp_path / "made")]) == 1
    assert not (tmp_path / "made").exists()


def test_two_folders_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "config.json", {"quantization_config": {"quant_method": "gpt_oss_mxfp4"}})
    assert validate(["--mxfp4", str(tmp_path / "a"), "--fp8", str(tmp_path / "b")]) == 1
    assert "holds no experts.w13_weight" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c["text_config"].update(num_hidden_layers=4), "layer 3 has no experts.w13_weight: a shard is missing"),
        (lambda c: c["text_config"].update(num_hidden_layers=2), "config.json has experts in 1 to 1"),
        (lambda c: c["text_config"].update(n_routed_experts=5), "config.json says 5 experts"),
        (lambda c: c["text_config"].update(quantization_config={"quant_method": "quark"}), "text_config says another quantization_config"),
    ],
)  # fmt: skip
def test_a_fused_checkpoint_that_is_not_whole(
    fused: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], object], said: str
) -> None:
    shutil.copytree(fused, tmp_path / "fused")
    edit_config(tmp_path / "fused", change)
    capsys.readouterr()
    assert convert(["--src", str(tmp_path / "fused"), "--dst", str(tmp_path / "made")]) == 1
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and not (tmp_path / "made").exists()


def test_nothing_is_written_to_what_is_validated(fused: Path, made: Path) -> None:
    before = {path: path.stat().st_mtime_ns for folder in (fused, made) for path in (folder, *folder.rglob("*"))}
    assert validate(["--mxfp4", str(fused), "--fp8", str(made), "--json"]) == 0
    assert {path: path.stat().st_mtime_ns for folder in (fused, made) for path in (folder, *folder.rglob("*"))} == before


def test_every_tensor_is_proven(fused: Path, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "made")
    random = np.random.default_rng(2)
    for file in sorted((tmp_path / "made").glob("*.safetensors")):
        for name, tensor in read_header(file).items():
            offset = int(random.integers(tensor.size))
            if name.endswith("weight_scale"):
                offset = offset // 4 * 4 + 3
            old = file.read_bytes()[tensor.start + offset]
            poke(tmp_path / "made", name, offset, old ^ 1)
            with pytest.raises(Different) as caught:
                Validation(fused, tmp_path / "made").run(2)
            assert name.removesuffix("_scale") in str(caught.value)
            poke(tmp_path / "made", name, offset, old)
    Validation(fused, tmp_path / "made").run(2)


def test_a_foreign_tensor_and_a_missing_one(fused: Path, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "made")
    file = max((tmp_path / "made").glob("*.safetensors"))
    file.rename(tmp_path / "made/zz.safetensors")
    with pytest.raises(Different, match="the index does not say"):
        Validation(fused, tmp_path / "made").run(1)
    (tmp_path / "made/zz.safetensors").unlink()
    with pytest.raises(Different, match=r"is missing|the index does not say"):
        Validation(fused, tmp_path / "made").run(1)


def test_again_and_otherwise(fused: Path, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(made, tmp_path / "made")
    before = contents(tmp_path / "made")
    assert convert(["--src", str(fused), "--dst", str(tmp_path / "made")]) == 0
    assert contents(tmp_path / "made") == before
    assert convert(["--src", str(fused), "--dst", str(tmp_path / "made"), "--format", "e4m3fn"]) == 1
    assert "was begun by mxfp4_to_fp8, up to 240, and this is mxfp4_to_fp8, up to 448" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "can not be read: no such file"),
        (b"[" * 100_000, "can not be understood: maximum recursion depth exceeded"),
        (b"{", "can not be understood: "),
        (b"[]", "is no mapping"),
    ],
)
def test_a_configuration_that_can_not_be_read(
    fused: Path, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, said: str
) -> None:
    other = tmp_path / "other"
    shutil.copytree(made, other)
    (other / "config.json").unlink()
    if content is not None:
        (other / "config.json").write_bytes(content)
    assert validate(["--mxfp4", str(fused), "--fp8", str(other)]) == 1
    out, err = capsys.readouterr()
    assert "VALIDATE_OK" not in out
    assert err.splitlines()[-1].startswith(f"validate_fp8.py: {other}/config.json: {said}")
    assert err.count(str(other)) == 1


def test_a_header_nested_without_end(fused: Path, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    shutil.copytree(made, other)
    shard = next(iter(sorted(other.glob("*.safetensors"))))
    header = b"[" * 100_000
    shard.write_bytes(len(header).to_bytes(8, "little") + header)
    assert validate(["--mxfp4", str(fused), "--fp8", str(other)]) == 1
    out, err = capsys.readouterr()
    assert "VALIDATE_OK" not in out
    assert f"validate_fp8.py: {shard}: can not be understood: " in err


def test_what_is_no_fused_checkpoint(fused: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(said: str, source: Path) -> None:
        capsys.readouterr()
        assert convert(["--src", str(source), "--dst", str(tmp_path / "made")]) == 1
        out = capsys.readouterr().err
        assert out.count("\n") == 1 and said in out
        assert not (tmp_path / "made").exists()

    refused("quant_method is not 'gpt_oss_mxfp4': give what repack_quark_mxfp4.py made", TINY)
    refused("no such folder", tmp_path / "none")
    other = tmp_path / "other"
    shutil.copytree(fused, other)
    shard = other / "model-00001-of-00004.safetensors"
    for name in ("model-00002-of-00004", "model-00003-of-00004", "model-00004-of-00004"):
        (other / f"{name}.safetensors").unlink()
    write_json(other / "model.safetensors.index.json", {"weight_map": dict.fromkeys(read_header(shard), shard.name)})
    refused("holds no experts.w13_weight", other)
