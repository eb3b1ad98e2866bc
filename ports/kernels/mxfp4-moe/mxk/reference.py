"""What the kernels compute, slowly and plainly, in float64, from the OCP Microscaling Formats specification 1.0 alone.

E2M1 (section 5.3.3): a sign, two bits of exponent with bias 1, one bit of mantissa; exponent 0 is subnormal.  E8M0 (section
5.4.1): 2^(byte - 127), and 255 is no number.  An element is its code's number times the scale of its group of 32 along K.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mxk.variant import GROUP

Floats = npt.NDArray[np.float64]


def e2m1(code: int) -> float:
    """The number of a code from 0 to 15."""
    sign = -1.0 if code & 8 else 1.0
    exponent, mantissa = code >> 1 & 3, code & 1
    return sign * (mantissa * 0.5 if exponent == 0 else (1 + mantissa * 0.5) * 2.0 ** (exponent - 1))


E2M1 = np.array([e2m1(code) for code in range(16)])


def dequantized(codes: npt.NDArray[np.uint8], scales: npt.NDArray[np.uint8]) -> Floats:
    """[..., N, K/2] bytes of two codes, low nibble first, with scales [..., N, K/32], as numbers [..., N, K]."""
    if (scales == 255).any():
        raise ValueError("a scale is byte 255, which is no number")
    numbers = np.stack([E2M1[codes & 15], E2M1[codes >> 4]], axis=-1).reshape(*codes.shape[:-1], codes.shape[-1] * 2)
    factors = np.ldexp(1.0, scales.astype(np.int64) - 127)
    found: Floats = numbers * np.repeat(factors, GROUP, axis=-1)
    return found


def silu(values: Floats) -> Floats:
    """X / (1 + e^-x), without overflow."""
    with np.errstate(over="ignore"):
        found: Floats = values / (1.0 + np.exp(-values))
    return found


def moe(tokens: Floats, ids: npt.NDArray[np.int64], weights: Floats, w13: Floats, w2: Floats, *, first: int = 0) -> Floats:
    """The mixture's output [T, H] of one rank, to be summed over the ranks.

    ``tokens`` [T, H]; ``ids`` [T, top_k] of experts in the whole model and their ``weights``; ``w13`` [E, 2 I, H], gate rows
    first, and ``w2`` [E, H, I] of this rank's experts, which are ``first`` to ``first + E - 1``.  Other ids add nothing.
    """
    output = np.zeros_like(tokens)
    half = w13.shape[1] // 2
    for token, (chosen, shares) in enumerate(zip(ids, weights, strict=True)):
        for expert, share in zip(chosen, shares, strict=True):
            if first <= expert < first + w13.shape[0]:
                both = w13[expert - first] @ tokens[token]
                output[token] += share * (w2[expert - first] @ (silu(both[:half]) * both[half:]))
    return output
