"""The order in which the kernels read a fused MXFP4 weight: every byte once, in vectors of 256, columns in the lanes.

A fused weight is [E, N, K/2] bytes, two codes along K a byte, the low nibble first, with E8M0 scales [E, N, K/32] (vLLM's layout,
which repack_quark_mxfp4.py writes).  A kernel computes 512 columns N at a time and walks along K, with the activation of one k in
a scalar.  So it wants, for each tile of 512 columns and each k, 256 bytes with the codes of all columns at that k:

- weights [E, N/512, K, 256]; within the 256 bytes, with column = 256 p + 128 n + 64 h + l, l < 64 and p, n, h of 0 and 1, the
  code is in nibble n (0 is the low one) of byte 4 l + 2 h + p.  Read as 128 lanes of 16 bits, the low bytes (p = 0) and the high
  bytes (p = 1) each index a table that gives two numbers (n); and of these 128 lanes the even (h = 0) and the odd (h = 1) are
  accumulated apart.  So each accumulator of 64 lanes holds 64 neighbouring columns.
- scales [E, N/512, K/32, 512]; within the 512 bytes, with column = 256 p + 64 m + l, l < 64, m < 4, the scale is byte
  256 p + 4 l + m: read as 64 lanes of 32 bits, byte m is that of column 64 m + l.

Both are permutations of the nibbles and bytes: nothing is lost, and 17 bytes stay 17 bytes.  The functions take and give numpy
arrays or torch tensors of unsigned bytes, on whatever device they are.
"""

from __future__ import annotations

from typing import Any

from mxk.variant import GROUP, TILE


def lay_weights(fused: Any) -> Any:
    """[E, N, K/2] to [E, N/512, K, 256].  Raises ``ValueError`` for another shape or type."""
    experts, columns, half = _shape(fused, 3)
    if columns % TILE:
        raise ValueError(f"{columns} rows are no multiple of {TILE}")
    # [E, tile, p, n, h, l, K/2]
    parts = fused.reshape(experts, columns // TILE, 2, 2, 2, 64, half)
    low, high = parts[:, :, :, 0], parts[:, :, :, 1]
    even = (low & 15) | ((high & 15) << 4)
    odd = (low >> 4) | (high & 240)
    # [E, tile, p, h, l, K/2, k % 2] to [E, tile, K/2, k % 2, l, h, p]
    both = _stacked(even, odd)
    return _transposed(both, (0, 1, 5, 6, 4, 3, 2)).reshape(experts, columns // TILE, half * 2, 256)


def fused_weights(laid: Any) -> Any:
    """[E, N/512, K, 256] to [E, N, K/2]: the inverse of :func:`lay_weights`."""
    experts, tiles, depth, width = _shape(laid, 4)
    if width != 256 or depth % 2:
        raise ValueError(f"{[experts, tiles, depth, width]} is not [experts, tiles, an even K, 256]")
    both = _transposed(laid.reshape(experts, tiles, depth // 2, 2, 64, 2, 2), (0, 1, 6, 5, 4, 2, 3))
    even, odd = both[..., 0], both[..., 1]
    low = (even & 15) | ((odd & 15) << 4)
    high = (even >> 4) | (odd & 240)
    # [E, tile, p, h, l, K/2, n] to [E, tile, p, n, h, l, K/2]
    return _transposed(_stacked(low, high), (0, 1, 2, 6, 3, 4, 5)).reshape(experts, tiles * TILE, depth // 2)


def lay_scales(fused: Any) -> Any:
    """[E, N, K/32] to [E, N/512, K/32, 512].  Raises ``ValueError`` for another shape or type."""
    experts, columns, groups = _shape(fused, 3)
    if columns % TILE:
        raise ValueError(f"{columns} rows are no multiple of {TILE}")
    parts = fused.reshape(experts, columns // TILE, 2, 4, 64, groups)
    return _transposed(parts, (0, 1, 5, 2, 4, 3)).reshape(experts, columns // TILE, groups, TILE)


def fused_scales(laid: Any) -> Any:
    """[E, N/512, K/32, 512] to [E, N, K/32]: the inverse of :func:`lay_scales`."""
    experts, tiles, groups, width = _shape(laid, 4)
    if width != TILE:
        raise ValueError(f"{[experts, tiles, groups, width]} is not [experts, tiles, groups, {TILE}]")
    parts = laid.reshape(experts, tiles, groups, 2, 64, 4)
    return _transposed(parts, (0, 1, 3, 5, 4, 2)).reshape(experts, tiles * TILE, groups)


def check_scales(fused: Any) -> None:
    """Raises ``ValueError`` for scale bytes 0 and 255, 2^-127 and NaN, which the kernels would take for 0 and infinity."""
    for byte in (0, 255):
        if bool((fused == byte).any()):
            taken = "zero" if byte == 0 else "infinity"
            raise ValueError(f"a scale is byte {byte}, which the kernels can not tell from {taken}")


def laid_bytes(experts: int, columns: int, depth: int) -> int:
    """Bytes of the weights and scales of a fused matrix, before and after."""
    return experts * columns * (depth // 2 + depth // GROUP)


def _shape(array: Any, dimensions: int) -> tuple[int, ...]:
    if str(array.dtype) not in ("uint8", "torch.uint8"):
        raise ValueError(f"{array.dtype} in place of unsigned bytes")
    if array.ndim != dimensions:
        raise ValueError(f"{list(array.shape)} has not {dimensions} dimensions")
    return tuple(array.shape)


def _stacked(one: Any, other: Any) -> Any:
    """Both as the last dimension."""
    if hasattr(one, "permute"):
        import torch

        return torch.stack([one, other], dim=-1)
    import numpy as np

    return np.stack([one, other], axis=-1)


def _transposed(array: Any, order: tuple[int, ...]) -> Any:
    if hasattr(array, "permute"):
        return array.permute(order).contiguous()
    return array.transpose(order)
