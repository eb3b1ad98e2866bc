"""Numbers of one format as numbers of another, by table.

E2M1 and E8M0: OCP Microscaling Formats 1.0, sections 5.3.3 and 5.4.1.  E4M3: OCP 8-bit Floating Point 1.0, table 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ckpt.errors import CheckpointError

Bytes = npt.NDArray[np.uint8]
GROUP = 32
"""Elements that share a scale in MXFP4."""
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The values of codes 0 to 7; bit 3 is the sign."""


def bf16_from_f32(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round to nearest, ties to even, as torch does.  Takes finite numbers or infinities."""
    bits: Any = values.view(np.uint32)
    rounded: npt.NDArray[np.uint16] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return rounded


def _pairs() -> npt.NDArray[np.uint32]:
    """For each scale byte and each byte of two codes, two BF16 numbers: the low code's in the low half.  [256 × 256]."""
    codes = np.array([*E2M1, *(-value for value in E2M1)], np.float32)
    with np.errstate(over="ignore"):
        scaled = np.ldexp(codes[None, :], np.arange(256)[:, None] - 127).astype(np.float32)
    numbers = bf16_from_f32(scaled).astype(np.uint32)
    low, high = np.arange(256) & 15, np.arange(256) >> 4
    pairs: npt.NDArray[np.uint32] = (numbers[:, low] | numbers[:, high] << np.uint32(16)).reshape(-1)
    return pairs


_PAIRS: npt.NDArray[np.uint32] = _pairs()
LARGEST_SCALE = 252
"""The largest E8M0 byte with which every code is finite in BF16: 6 × 2^(252-127) = 1.5 × 2^127."""


def bf16_from_mxfp4(codes: Bytes, scales: Bytes) -> npt.NDArray[np.uint16]:
    """MXFP4 [N, K/2], low nibble first, with E8M0 scales [N, K/32], as the bits of BF16 [N, K].  Exact."""
    rows, half = codes.shape
    index = scales[:, :, None].astype(np.uint16) << 8 | codes.reshape(rows, half * 2 // GROUP, GROUP // 2)
    numbers: npt.NDArray[np.uint16] = _PAIRS[index].view(np.uint16).reshape(rows, half * 2)
    return numbers


def e4m3_values() -> npt.NDArray[np.float32]:
    """The value of each E4M3 code (1 sign, 4 exponent with bias 7, 3 mantissa bits; 0x7F and 0xFF are NaN).  [256]."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    size = np.where(exponent > 0, np.ldexp(1 + mantissa / 8, exponent - 7), np.ldexp(mantissa / 8, -6))
    values = np.where(code & 128, -size, size)
    values[code & 127 == 127] = np.nan
    return values.astype(np.float32)


_E4M3 = e4m3_values()


def bf16_from_fp8(codes: Bytes, scales: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """E4M3 [N, K] with a scale a row [N], as the bits of BF16 [N, K]: multiplied in float32, then rounded to nearest even.

    Raises :class:`CheckpointError` for a number that is not finite.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        table = _E4M3[None, :] * scales[:, None]
        bits = bf16_from_f32(table)
    out = np.empty(codes.shape, np.uint16)
    for row in range(codes.shape[0]):
        np.take(bits[row], codes[row], out=out[row])
    unfit = ~np.isfinite(table) | ((bits & 0x7F80) == 0x7F80)
    if unfit.any():
        for row in np.flatnonzero(unfit.any(axis=1)).tolist():
            columns = np.flatnonzero(unfit[row][codes[row]])
            if columns.size:
                raise CheckpointError(f"row {row}, column {columns[0]} is not a finite number in BF16")
    return out


def scale_bytes(raw: Bytes, dtype: str) -> Bytes:
    """Scales as E8M0 bytes, from the bytes of U8, F8_E8M0, F32 or BF16; the wider ones must be powers of two.

    Raises :class:`CheckpointError` for a scale that is no power of two, or that is byte 255 (NaN).
    """
    if dtype in ("U8", "F8_E8M0"):
        found = raw
    else:
        bits: Any = raw.view(np.uint32) if dtype == "F32" else raw.view(np.uint16).astype(np.uint32) << 16
        # 2^-127, the least, is the one power of two here that float32 holds as a subnormal.
        least = bits == 0x00400000
        if ((bits & 0x807FFFFF != 0) & ~least).any() or (bits == 0).any():
            raise CheckpointError(f"a scale in {dtype} is no power of two")
        found = np.where(least, 0, bits >> 23).astype(np.uint8)
    if (found == 255).any():
        raise CheckpointError(f"scale {int(np.flatnonzero(found.reshape(-1) == 255)[0])} is byte 255, which is no number")
    return found
