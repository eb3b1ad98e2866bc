"""MXFP4 as FP8 with one power of two a channel, exactly, or a channel is named that it can not be exact for.

An element is m × 2^E, m of E2M1 and E the power of its group.  With the channel's scale 2^S it becomes m × 2^(E-S), which E4M3
holds if it is no larger than the largest number and a multiple of the least, 2^-9: m has at most two significant bits, and E4M3
keeps four.
S is the least with which the largest element fits, so that the smallest has as much room below it as there is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ckpt.dequantize import E2M1, GROUP, Bytes, e4m3_values
from ckpt.errors import CheckpointError
from ckpt.plan import Form

GAUDI2 = 240
"""The largest number of Gaudi 2's E4M3, which keeps the highest exponent for other things; its codes are those of E4M3 else."""
E4M3FN = 448
"""The largest number of OCP's E4M3."""
LEAST = -9
"""The least number of either is 2^-9."""

_LOW, _HIGH = -15, 8
"""Differences E - S beyond which nothing changes: below, every code rounds to nothing; above is refused."""
_NONE = 1 << 20

_MAGNITUDE = np.array(E2M1)
_LOWEST_BIT = np.array([_NONE, -1, 0, -1, 1, 0, 2, 1])
"""log2 of the lowest bit that is set in the value of each code; nothing for zero."""


def _of_bytes(of_code: npt.NDArray[Any], join: Any) -> npt.NDArray[Any]:
    """For each byte of two codes, what a table says of both, joined."""
    byte = np.arange(256)
    return join(of_code[byte & 7], of_code[byte >> 4 & 7])  # type: ignore[no-any-return]


_LARGEST_OF_BYTE = _of_bytes(np.arange(8, dtype=np.uint8), np.maximum)
_LOWEST_OF_BYTE = _of_bytes(np.where(_LOWEST_BIT == _NONE, 100, _LOWEST_BIT).astype(np.int8), np.minimum)


def _tables() -> tuple[npt.NDArray[np.uint16], Bytes]:
    """For each difference E - S and byte of two codes: both in E4M3, low code first; and how many are rounded."""
    codes = np.arange(16)
    values = np.where(codes & 8, -1.0, 1.0) * _MAGNITUDE[codes & 7]
    exact = e4m3_values()[:127].astype(np.float64)
    found = np.zeros((_HIGH - _LOW + 1, 16), np.uint16)
    rounded = np.zeros((_HIGH - _LOW + 1, 16), np.uint8)
    for number, difference in enumerate(range(_LOW, _HIGH + 1)):
        size = np.abs(np.ldexp(values, difference))
        above = np.minimum(np.searchsorted(exact, size), 126)
        below = np.maximum(above - 1, 0)
        up, down = exact[above] - size, size - exact[below]
        # Halfway, the even code: codes that follow each other differ in their last bit.
        nearest = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
        found[number] = nearest | (codes & 8) << 4
        rounded[number] = exact[nearest] != size
    byte = np.arange(256)
    pairs: Any = found[:, byte & 15] | found[:, byte >> 4] << 8
    both: Any = rounded[:, byte & 15] + rounded[:, byte >> 4]
    return pairs.reshape(-1), both.reshape(-1)


_PAIRS, _ROUNDED = _tables()


def fp8_from_mxfp4(codes: Bytes, powers: Bytes, form: Form, first: int = 0) -> tuple[Bytes, npt.NDArray[np.float32], int]:
    """MXFP4 [N, K/2] with E8M0 scales [N, K/32] as E4M3 [N, K] with a scale a row [N], and how many elements were rounded.

    ``first`` is the number of the first row, for messages.  Raises :class:`CheckpointError` for a channel that is not exact,
    unless the form allows rounding.
    """
    rows, half = codes.shape
    grouped = codes.reshape(rows, half * 2 // GROUP, GROUP // 2)
    exponents = powers.astype(np.int32) - 127
    largest = _LARGEST_OF_BYTE[grouped].max(axis=2)
    largest_value = np.ldexp(_MAGNITUDE[largest], exponents).max(axis=1)
    lowest = (_LOWEST_OF_BYTE[grouped].min(axis=2).astype(np.int32) + exponents + np.where(largest == 0, _NONE, 0)).min(axis=1)
    fraction, exponent = np.frexp(largest_value)
    limit, limit_exponent = np.frexp(float(form.largest))
    shift = np.where(largest_value == 0, 0, exponent - limit_exponent + (fraction > limit)).astype(np.int32)
    unfit = (lowest < shift + LEAST) & (largest_value > 0)
    difference = np.clip(exponents - shift[:, None], _LOW, _HIGH)
    index = (difference - _LOW)[:, :, None] * 256 + grouped
    inexact = 0
    if unfit.any():
        wrong = _ROUNDED[index[unfit]].reshape(int(unfit.sum()), -1).sum(axis=1)
        if not form.rounds:
            channel = int(np.flatnonzero(unfit)[0])
            held = exponents[channel][largest[channel] > 0]
            raise CheckpointError(
                f"channel {first + channel} is not exact: its groups' powers span {held.max() - held.min()}, and {wrong[0]} of "
                f"{half * 2} elements would be rounded; --allow-underflow rounds and counts them"
            )
        inexact = int(wrong.sum())
    numbers = _PAIRS[index].view(np.uint8).reshape(rows, half * 2)
    return numbers, np.ldexp(np.float32(1), shift).astype(np.float32), inexact
