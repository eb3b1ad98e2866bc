"""What the tests of the converters share: sources, and what is done to them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from benchmarks.quarktrees import PREFIX, Shape, write_json, write_quark
from ckpt.headers import read_header
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


def loadable(folder: Path) -> bool:
    """Whether anything would take a folder for a checkpoint."""
    return (folder / "config.json").exists()


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


def rename(copy: Path, old: str, new: str) -> None:
    """Give a tensor another name, in its shard and in the index."""
    index = json.loads((copy / "model.safetensors.index.json").read_text())
    shards = sorted(path.name for path in copy.glob("*.safetensors"))
    edit_header(copy, lambda header: header.update({new: header.pop(old)}), shards.index(index["weight_map"][old]))
    index["weight_map"][new] = index["weight_map"].pop(old)
    write_json(copy / "model.safetensors.index.json", index)


def poke(folder: Path, name: str, offset: int, value: int) -> None:
    """Change one byte of a tensor."""
    for file in folder.glob("*.safetensors"):
        if tensor := read_header(file).get(name):
            with file.open("r+b") as opened:
                opened.seek(tensor.start + offset)
                opened.write(bytes([value]))
            return
    raise AssertionError(name)
