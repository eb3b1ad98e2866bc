"""The kernels' order of the weights loses nothing and is the one that is written down; their reference is the specification's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoints import mxfp4
from mxk import layout, reference
from mxk.variant import Variant, VariantError, load_variant, names

SHAPES = st.tuples(st.integers(1, 3), st.sampled_from([512, 1024]), st.sampled_from([32, 64, 160]))


def random_bytes(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


# --- the order -----------------------------------------------------------------------------------------------------------


def test_each_code_is_where_it_is_said_to_be() -> None:
    """By the words of the module alone, one code at a time."""
    experts, columns, depth = 2, 1024, 64
    fused, scales = random_bytes(0, experts, columns, depth // 2), random_bytes(1, experts, columns, depth // 32)
    laid, laid_scales = layout.lay_weights(fused), layout.lay_scales(scales)
    assert laid.shape == (experts, 2, depth, 256) and laid_scales.shape == (experts, 2, depth // 32, 512)
    for expert in range(experts):
        for column in range(columns):
            tile, inside = divmod(column, 512)
            p, n, h, l_ = inside // 256, inside // 128 % 2, inside // 64 % 2, inside % 64
            codes = laid[expert, tile, :, 4 * l_ + 2 * h + p] >> 4 * n & 15
            assert np.array_equal(codes[::2], fused[expert, column] & 15)
            assert np.array_equal(codes[1::2], fused[expert, column] >> 4)
            m = inside // 64 % 4
            assert np.array_equal(laid_scales[expert, tile, :, 256 * p + 4 * l_ + m], scales[expert, column])


@settings(max_examples=30, deadline=None)
@given(SHAPES, st.integers(0, 2**32 - 1))
def test_nothing_is_lost(shape: tuple[int, int, int], seed: int) -> None:
    experts, columns, depth = shape
    weights, scales = random_bytes(seed, experts, columns, depth // 2), random_bytes(seed, experts, columns, depth // 32)
    laid, laid_scales = layout.lay_weights(weights), layout.lay_scales(scales)
    assert np.array_equal(layout.fused_weights(laid), weights)
    assert np.array_equal(layout.fused_scales(laid_scales), scales)
    assert laid.size + laid_scales.size == weights.size + scales.size == layout.laid_bytes(experts, columns, depth)
    assert np.array_equal(layout.lay_weights(layout.fused_weights(weights.reshape(laid.shape))), weights.reshape(laid.shape))


def test_torch_gives_the_same() -> None:
    weights, scales = random_bytes(2, 2, 1024, 48), random_bytes(3, 2, 1024, 3)
    for there, back, array in (
        (layout.lay_weights, layout.fused_weights, weights),
        (layout.lay_scales, layout.fused_scales, scales),
    ):
        tensor = torch.from_numpy(array)
        assert np.array_equal(there(tensor).numpy(), there(array))
        assert there(tensor).is_contiguous()
        assert torch.equal(back(there(tensor)), tensor)


@pytest.mark.parametrize(
    ("function", "array", "said"),
    [
        (layout.lay_weights, np.zeros((1, 500, 16), np.uint8), "500 rows are no multiple of 512"),
        (layout.lay_scales, np.zeros((1, 8, 1), np.uint8), "8 rows are no multiple of 512"),
        (layout.lay_weights, np.zeros((1, 512, 16), np.int8), "int8 in place of unsigned bytes"),
        (layout.lay_weights, torch.zeros((1, 512, 16), dtype=torch.int16), "torch.int16 in place of unsigned bytes"),
        (layout.lay_weights, np.zeros((512, 16), np.uint8), "has not 3 dimensions"),
        (layout.fused_weights, np.zeros((1, 1, 2, 255), np.uint8), "is not"),
        (layout.fused_weights, np.zeros((1, 1, 3, 256), np.uint8), "is not"),
        (layout.fused_scales, np.zeros((1, 1, 3, 256), np.uint8), "is not"),
    ],
)
def test_arrays_that_are_none(function: Any, array: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        function(array)


def test_scales_that_the_kernels_would_misread() -> None:
    scales = np.full((1, 512, 1), 127, np.uint8)
    layout.check_scales(scales)
    for byte in (0, 255):
        scales[0, 3, 0] = byte
        with pytest.raises(ValueError, match=f"byte {byte}, which"):
            layout.check_scales(scales)


# --- the reference ---------------------------------------------------------------------------------------------------------


def test_numbers_are_those_of_torch() -> None:
    """All bytes of two codes with scales all along, against the other arithmetic of these tests."""
    codes = np.tile(np.arange(256, dtype=np.uint8).reshape(16, 16), (253, 1))
    scales = np.repeat(np.arange(253, dtype=np.uint8), 16)[:, None]
    wanted = mxfp4(torch.from_numpy(codes), torch.from_numpy(scales)).double().numpy()
    found = reference.dequantized(codes, scales)
    normal = np.abs(found) >= 2.0**-126
    assert np.array_equal(found[normal], wanted[normal]) and normal.mean() > 0.8
    with pytest.raises(ValueError, match="byte 255"):
        reference.dequantized(codes[:1], np.array([[255]], np.uint8))


def test_a_mixture_is_what_torch_makes_of_it() -> None:
    random = np.random.default_rng(5)
    w13, w2 = random.standard_normal((3, 16, 8)), random.standard_normal((3, 8, 8))
    tokens, ids = random.standard_normal((5, 8)), random.integers(0, 9, (5, 2))
    shares = random.random((5, 2))
    wanted = torch.zeros(5, 8, dtype=torch.float64)
    for token in range(5):
        for chosen, share in zip(ids[token], shares[token], strict=True):
            if 3 <= chosen < 6:
                gate, up = (torch.from_numpy(w13[chosen - 3]) @ torch.from_numpy(tokens[token])).chunk(2)
                wanted[token] += share * (torch.from_numpy(w2[chosen - 3]) @ (torch.nn.functional.silu(gate) * up))
    found = reference.moe(tokens, ids, shares, w13, w2, first=3)
    assert np.allclose(found, wanted.numpy(), rtol=1e-12, atol=1e-12)
    assert not reference.moe(tokens, ids, shares, w13, w2, first=90).any(), "experts of other ranks"
    assert np.array_equal(reference.silu(np.array([-1e4, 0.0, 1e4])), [0, 0, 1e4])


# --- variants --------------------------------------------------------------------------------------------------------------


def test_the_variants_are_there() -> None:
    assert names() == ["kimi", "tiny"]
    assert load_variant("kimi") == Variant("kimi", 7168, 2048, 384, 48, 8, 16)
    assert layout.laid_bytes(1, 2 * 2048, 7168) + layout.laid_bytes(1, 7168, 2048) == 23_396_352


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden": 700}, "hidden is 700, and must be a multiple of 512"),
        ({"intermediate": 96}, "intermediate is 96, and must be a multiple of 512"),
        ({"hidden": "7168"}, "hidden is '7168', and must be a whole number"),
        ({"top_k": 0}, "top_k is 0, and must be a whole number"),
        ({"top_k": True}, "top_k is True, and must be a whole number"),
        ({"local_experts": 5}, "experts a multiple of local_experts"),
        ({"top_k": 400}, "top_k must be at most experts"),
        ({"more": 1}, "must be a mapping of hidden, intermediate"),
    ],
)
def test_variants_that_can_not_be(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    kimi = json.loads((Path(layout.__file__).parent.parent / "variants/kimi.json").read_text())
    (tmp_path / "bad.json").write_text(json.dumps({**kimi, **change}))
    with pytest.raises(VariantError, match=said):
        load_variant("bad", tmp_path)


def test_variants_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(VariantError, match="none: no such variant; there are kimi, tiny"):
        load_variant("none")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(VariantError, match=r"bad.json: can not be read"):
        load_variant("bad", tmp_path)
