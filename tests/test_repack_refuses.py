"""One clear line for whatever can not be repacked, and nothing written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.quarktrees import PREFIX, Shape, write_json, write_quark
from checkpoints import (
    EXPERT,
    NORM,
    TOOL,
    config_with,
    contents,
    edit_header,
    loadable,
    poke,
    refused,
    rename,
    run,
)
from ckpt import verify
from ckpt.reread import Different


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
        (Shape(extra=(("language_model.model.x.weight", "F8_E5M2", (2, 2)),)), "is F8_E5M2, and no format of this release"),
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
    refused(capsys, copy, tmp_path / "made", "'__metadata__' stands twice")


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
    refused(capsys, copy, tmp_path / "file", "is a file: name a folder")
    (copy / "LICENSE").unlink()
    refused(capsys, copy, tmp_path / "made", "has no LICENSE, which goes with the weights")


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


@pytest.mark.parametrize("number", ["01", "٣", "1_0", "+1", "9999999999"])
@pytest.mark.parametrize("what", ["layers.1.", "experts.1."])
def test_numbers_that_are_written_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str], number: str, what: str) -> None:
    """Beside the expert that has the number, or alone: refused by the converter, and by the second parser."""
    name = f"{PREFIX}1.mlp.experts.1.down_proj.weight".replace(what, f"{what.split('.')[0]}.{number}.")
    source = write_quark(tmp_path / "source", Shape(extra=((name, "U8", (64, 16)),)))
    refused(capsys, source, tmp_path / "made", "a name that Quark 0.12 does not give")
    assert run(write_quark(tmp_path / "good", Shape()), tmp_path / "made") == 0
    with pytest.raises(Different, match="is no name of an expert's tensor"):
        verify.verify(source, tmp_path / "made", 1)


def test_a_tensor_with_the_name_of_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (f"{PREFIX}1.mlp.experts.w13_weight", "language_model.lm_head.weight"):
        source = write_quark(tmp_path / "source", Shape(extra=((name, "BF16", (1,)),)))
        refused(capsys, source, tmp_path / "made", name)
        shutil.rmtree(source)


def test_names_without_a_prefix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_quark(tmp_path / "source", Shape(prefix="layers."))
    assert run(source, tmp_path / "made", "--verify") == 0
    assert capsys.readouterr().out.endswith("VERIFY_OK\n")


def test_a_scale_of_something_else_is_a_tensor_like_others(tmp_path: Path) -> None:
    extra = (("vision_tower.logit_scale", "F32", ()), ("vision_tower.rescale", "BF16", (2,)))
    assert run(write_quark(tmp_path / "source", Shape(extra=extra)), tmp_path / "made", "--verify") == 0


def test_folders_behind_links_are_copied_and_compared(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away = tmp_path / "away"
    (away / "deep").mkdir(parents=True)
    (away / "deep/image.txt").write_text("image")
    (copy / "assets").symlink_to(away)
    assert run(copy, tmp_path / "made", "--verify") == 0
    assert (tmp_path / "made/assets/deep/image.txt").read_text() == "image"
    (tmp_path / "made/assets/deep/image.txt").write_text("IMAGE")
    assert run(copy, tmp_path / "made", "--verify") == 1
    assert "image.txt: is not what" in capsys.readouterr().err
    (away / "back").symlink_to(away)
    refused(capsys, copy, tmp_path / "other", "back: is a link to a folder that it lies in: remove it")


def test_what_fetched_a_checkpoint_is_not_of_it(copy: Path, tmp_path: Path) -> None:
    for name in (".git/objects", ".cache/huggingface", "sub/.git"):
        (copy / name).mkdir(parents=True)
        (copy / name / "big").write_text("big")
    (copy / "conversion.json").write_text("{}")
    (copy / ".conversion.lock").write_text("")
    assert run(copy, tmp_path / "made", "--verify") == 0
    assert not [path for path in (tmp_path / "made").rglob("*") if path.name == "big"]
    assert "source" in json.loads((tmp_path / "made/conversion.json").read_text())


def test_what_is_no_file(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pipes, which would never end, links to nothing: found before anything is written."""
    shard = min(copy.glob("*.safetensors"))
    for name in ("notes", "config.json", "model.safetensors.index.json", shard.name):
        kept = (copy / name).read_bytes() if (copy / name).exists() else None
        (copy / name).unlink(missing_ok=True)
        os.mkfifo(copy / name)
        refused(capsys, copy, tmp_path / "made", f"{name}: is no regular file")
        (copy / name).unlink()
        if kept is not None:
            (copy / name).write_bytes(kept)
    (copy / "notes").symlink_to("nothing")
    refused(capsys, copy, tmp_path / "made", "notes: can not be read: no such file or directory")
    (copy / "notes").unlink()
    (copy / "LICENSE").rename(copy / "tokenizer/LICENSE")
    refused(capsys, copy, tmp_path / "made", "has no LICENSE")


def test_shapes_and_keys_that_take_for_ever(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit_header(copy, lambda header: header[NORM].update(shape=[2**62] * 300_000))
    refused(capsys, copy, tmp_path / "made", "and 299992 more, which is another number of bytes")
    path = sorted(copy.glob("*.safetensors"))[1]
    text = b"{" + b",".join(b'"%d":1' % (number % 60_000) for number in range(60_001)) + b"}"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    refused(capsys, copy, tmp_path / "made", "the key '0' stands twice")


def test_json_whose_keys_stand_twice(copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, key in (("config.json", "text_config"), ("model.safetensors.index.json", "weight_map")):
        text = (copy / name).read_text()
        (copy / name).write_text(text.replace("{", f'{{"{key}": {{}}, ', 1))
        refused(capsys, copy, tmp_path / "made", f"{name}: is not JSON: the key '{key}' stands twice")
        (copy / name).write_text(text)


def test_half_a_character_in_the_configuration(copy: Path, tmp_path: Path) -> None:
    config_with(copy, lambda config: config.update(note="\ud800 and ß"))
    assert run(copy, tmp_path / "made", "--verify") == 0
    assert json.loads((tmp_path / "made/config.json").read_text())["note"] == "\ud800 and ß"


def test_a_name_that_would_write_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_quark(tmp_path / "source", Shape(extra=(("x\nVERIFY_OK\x1b[2J.weight", "F8_E5M2", (2,)),)))
    refused(capsys, source, tmp_path / "made", "x\\nVERIFY_OK\\x1b[2J.weight is F8_E5M2")


def test_streams_that_are_closed_full_or_narrow(source: Path, tmp_path: Path) -> None:
    """The work is done, or said not to be, whatever becomes of the output; and nothing else is printed."""
    made = tmp_path / "gemächt"
    call = f"{sys.executable} {TOOL} --src {source} --dst {made} --verify"

    def ended(tail: str, **env: str) -> tuple[int, str]:
        done = subprocess.run(["bash", "-c", call + tail], capture_output=True, text=True, env={**os.environ, **env})
        return done.returncode, done.stdout + done.stderr

    assert ended("", PYTHONIOENCODING="ascii")[0] == 0
    assert ended(" 2>&-") == (0, ended(" 2>/dev/null")[1])
    assert ended(" >&- 2>&-") == (0, "")
    assert ended(" >/dev/full") == (1, "repack_quark_mxfp4.py: output: no space left on device\n")
    assert "Traceback" not in ended(" | true")[1] + ended(" --json 2>&1 | true")[1]
    shutil.rmtree(made)
    assert ended(" >&- 2>&- <&-") == (0, "")
    assert contents(made)["LICENSE"] == contents(source)["LICENSE"]


def test_an_error_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "none", tmp_path / "made", "--json") == 1
    out, err = capsys.readouterr()
    assert out == "" and json.loads(err) == {"error": f"{tmp_path / 'none'}: no such folder"}
    for jobs in ("0", "17", "-1"):
        with pytest.raises(SystemExit, match="2"):
            run(tmp_path / "none", tmp_path / "made", "--jobs", jobs)
