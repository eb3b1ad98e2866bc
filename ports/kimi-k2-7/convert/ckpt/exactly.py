"""The numbers of each format, exactly, in float64: computed for the proofs, where the converters look them up in tables.

E2M1 and E8M0: OCP Microscaling Formats 1.0, sections 5.3.3 and 5.4.1.  E4M3: OCP 8-bit Floating Point 1.0, table 1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def floats(raw: npt.NDArray[np.uint8], dtype: str) -> npt.NDArray[np.float64]:
    """Numbers of a format, exactly, in float64."""
    if dtype == "F32":
        return raw.view("<f4").astype(np.float64)
    if dtype == "BF16":
        return (raw.view("<u2").astype(np.uint32) << 16).view("<f4").astype(np.float64)
    powers: npt.NDArray[np.float64] = np.ldexp(1.0, raw.astype(np.int64) - 127)
    return powers


def e2m1(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Bytes of two codes as numbers, the low code first.  [...] -> [..., 2]."""
    four = np.stack([codes & 15, codes >> 4], axis=-1).astype(np.int64)
    exponent, mantissa = four >> 1 & 3, four & 1
    size = np.where(exponent == 0, mantissa / 2, np.ldexp(1 + mantissa / 2, exponent - 1))
    numbers: npt.NDArray[np.float64] = np.copysign(size, 0.5 - (four >> 3))
    return numbers


def mxfp4(codes: npt.NDArray[np.uint8], scales: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Rows of codes [N, K/2] times their groups' scales [N, K/32], as numbers [N, K]."""
    return e2m1(codes).reshape(codes.shape[0], -1) * np.repeat(scales, 32, axis=1)


def fp8(codes: npt.NDArray[np.uint8], scales: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """E4M3 [N, K] times its row's scale [N], as float32 multiplies."""
    return np.asarray(e4m3(codes).astype(np.float32) * scales.astype(np.float32), np.float64)


def e4m3(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """OCP's E4M3: the codes 0x7F and 0xFF are no number."""
    wide = codes.astype(np.int64)
    exponent, mantissa = wide >> 3 & 15, wide & 7
    size = np.where(exponent == 0, np.ldexp(mantissa / 8, -6), np.ldexp(1 + mantissa / 8, exponent - 7))
    signed: npt.NDArray[np.float64] = np.copysign(np.where(wide & 127 == 127, np.nan, size), 0.5 - (wide >> 7))
    return signed


def rounded(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """To BF16, nearest, ties to even: eight bits of significand, down to multiples of 2^-133."""
    quantum = np.ldexp(1.0, np.maximum(np.frexp(values)[1] - 8, -133))
    found: npt.NDArray[np.float64] = np.rint(values / quantum) * quantum
    return found
