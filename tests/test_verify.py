"""The second look at a fused checkpoint finds every difference."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from checkpoints import (
    poke,
    run,
)
from ckpt import verify
from ckpt.headers import make_header, read_header
from ckpt.reread import Different


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
            with pytest.raises(Different) as caught:
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
    with pytest.raises(Different, match=said):
        verify.verify(source, tmp_path / "made", 1)


def test_a_missing_and_a_foreign_tensor(source: Path, tmp_path: Path) -> None:
    assert run(source, tmp_path / "made") == 0
    last = max((tmp_path / "made").glob("*.safetensors"))
    last.rename(tmp_path / "away")
    with pytest.raises(Different, match=r"lm_head.weight is missing|embed_tokens.weight is missing|the index does not say"):
        verify.verify(source, tmp_path / "made", 1)
    shutil.copy(tmp_path / "away", last)
    header, _ = make_header([("ghost", "U8", (1,))], {})
    (tmp_path / "made/ghost.safetensors").write_bytes(header + b"\0")
    with pytest.raises(Different, match="ghost comes from nothing in the source"):
        verify.verify(source, tmp_path / "made", 1)
