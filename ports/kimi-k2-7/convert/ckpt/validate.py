"""Compares an FP8 checkpoint with the fused MXFP4 one it was made from, number for number, sharing no code with what made it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ckpt import exactly
from ckpt.reread import STRETCH, Different, Side, Spoilt, check_index, check_others, compare_all, same_bytes

_LOW, _HIGH = -16, 10
"""Differences of powers beyond which nothing changes: 6 × 2^-16 rounds to nothing, and 0.5 × 2^10 is more than E4M3 has."""


class Validation:
    """One comparison.  ``largest`` is that of the E4M3: 240 on Gaudi 2, or 448."""

    def __init__(self, source: Path, made: Path, *, largest: int = 240, rounds: bool = False) -> None:
        self.left, self.right, self.largest, self.rounds = Side(source), Side(made), largest, rounds
        self.rounded = 0
        """Elements that are the nearest number and not the same; none, unless they may be."""
        self._lock = threading.Lock()
        self._pairs, self._inexact = _tables()
        if self.left.config.get("quantization_config") != {"quant_method": "gpt_oss_mxfp4"}:
            raise Different(f"{source}/config.json: its quant_method is not gpt_oss_mxfp4: give what repack_quark_mxfp4.py made")
        self._tasks = self._expected()

    @property
    def size(self) -> int:
        """Of all that is compared, in bytes of the FP8 checkpoint."""
        return sum(region.length for region in self.right.regions.values())

    def run(self, jobs: int, report: Callable[[int], None] = lambda _: None) -> None:
        """Raises :class:`Different` at the first difference that is found.  ``report`` is told of bytes that were compared."""
        self.right.drop_cached()
        try:
            check_index(self.right)
            self._check_config()
            check_others(self.left, self.right)
            compare_all(iter(self._tasks), jobs, report)
        finally:
            self.left.close()
            self.right.close()

    def _expected(self) -> list[Callable[[], int]]:
        tasks: list[Callable[[], int]] = []
        names: set[str] = set()
        fused = 0
        for name, region in self.left.regions.items():
            match = re.fullmatch(r"((?:.*\.)?layers\.\d+\.mlp\.experts\.)(w13|w2)_weight(_scale)?", name)
            if match is None:
                names.add(name)
                tasks.append(lambda name=name: same_bytes(self.left, self.right, name))  # type: ignore[misc]
                continue
            if match[3]:
                self.left.get(name.removesuffix("_scale"))
                continue
            fused += 1
            powers = self.left.get(f"{name}_scale")
            sides = ("gate", "up") if match[2] == "w13" else ("down",)
            good = (region.dtype, powers.dtype) == ("U8", "U8") and len(region.shape) == 3 and 0 not in region.shape
            if not good or region.shape[1] % len(sides) or powers.shape != (*region.shape[:2], region.shape[2] // 16):
                raise Different(f"{region.file}: {name} is {region} with scales {powers}, which are no fused experts")
            rows = region.shape[1] // len(sides)
            for expert in range(region.shape[0]):
                for number, side in enumerate(sides):
                    first, key = expert * region.shape[1] + number * rows, f"{match[1]}{expert}.{side}_proj.weight"
                    names |= {key, f"{key}_scale"}
                    tasks.append(lambda name=name, key=key, first=first, rows=rows: self._channels(name, key, first, rows))  # type: ignore[misc]
        if not fused:
            raise Different(f"{self.left.folder}: holds no experts.w13_weight: give what repack_quark_mxfp4.py made")
        for name in sorted({*self.right.regions} - names):
            raise Different(f"{self.right.get(name).file}: {name} comes from nothing in the source")
        for name in sorted(names - {*self.right.regions}):
            raise Different(f"{self.right.folder}: {name} is missing")
        return tasks

    def _channels(self, fused: str, name: str, first: int, rows: int) -> int:
        """One expert's matrix: rows of the fused tensor, from ``first`` on."""
        codes, powers = self.left.get(fused), self.left.get(f"{fused}_scale")
        made, scale = self.right.get(name), self.right.get(f"{name}_scale")
        half, groups = codes.shape[2], powers.shape[2]
        if (made.dtype, made.shape, scale.dtype, scale.shape) != ("F8_E4M3", (rows, half * 2), "F32", (rows, 1)):
            raise Spoilt(made.file, f"{name} is {made} with scales {scale}")
        step = max(1, STRETCH // (2 * half))
        for row in range(0, rows, step):
            count = min(step, rows - row)
            old = self.left.read(codes, (first + row) * half, count * half).reshape(count, groups, 16)
            exponents = (
                self.left.read(powers, (first + row) * groups, count * groups).reshape(count, groups).astype(np.int32) - 127
            )
            new = self.right.read(made, row * half * 2, count * half * 2).reshape(count, half * 2)
            factors = exactly.floats(self.right.read(scale, row * 4, count * 4), "F32")
            fractions, shifts = np.frexp(factors)
            if (fractions != 0.5).any() or not np.isfinite(factors).all():
                at = int(np.flatnonzero((fractions != 0.5) | ~np.isfinite(factors))[0])
                raise Spoilt(scale.file, f"{name}_scale, channel {row + at}: {factors[at]} is no power of two")
            if (beyond := (new & 127) > (0x77 if self.largest == 240 else 0x7E)).any():
                at, column = np.argwhere(beyond)[0]
                code = f"code {new[at, column]:#04x}"
                raise Spoilt(made.file, f"{_place(name, row + at, column, half)}: {code} is above {self.largest}")
            difference = np.clip(exponents - (shifts - 1)[:, None], _LOW, _HIGH)
            index = (difference - _LOW)[:, :, None] * 256 + old
            wanted = self._pairs[index].view(np.uint8).reshape(count, half * 2)
            if not np.array_equal(new, wanted):
                at, column = np.argwhere(new != wanted)[0]
                found = exactly.e4m3(new[at : at + 1, column])[0] * factors[at]
                number = exactly.mxfp4(old[at].reshape(1, half), np.ldexp(1.0, exponents[at : at + 1]))[0, column]
                raise Spoilt(made.file, f"{_place(name, row + at, column, half)}: {found}, and {fused} has {number}")
            inexact = self._inexact[index].reshape(count, half)
            if inexact.any():
                self._check_rounded(name, row, inexact, new, old, exponents, shifts)
        return made.length + scale.length

    def _check_rounded(
        self, name: str, row: int, inexact: npt.NDArray[np.uint8], new: npt.NDArray[np.uint8], *numbers: npt.NDArray[Any]
    ) -> None:
        """Rounding must be allowed, and its scale the least with which the largest number of the channel fits."""
        made, half = self.right.get(name), inexact.shape[1]
        if not self.rounds:
            at, byte = np.argwhere(inexact)[0]
            place = _place(name, row + at, byte * 2, half)
            raise Spoilt(made.file, f"{place}: this or the next number was rounded; --allow-underflow counts them")
        old, exponents, shifts = numbers
        for at in np.flatnonzero(inexact.any(axis=1)):
            largest = np.abs(exactly.mxfp4(old[at].reshape(1, half), np.ldexp(1.0, exponents[at : at + 1]))).max()
            if np.ldexp(largest, int(2 - shifts[at])) <= self.largest:
                raise Spoilt(made.file, f"{name}, channel {row + at}: a smaller scale would have done")
        with self._lock:
            self.rounded += int(inexact.sum())

    def _check_config(self) -> None:
        """The configuration is the source's but for its quantization, which leaves out what is BF16."""
        linears = [name for name, region in self.right.regions.items() if region.dtype == "BF16" and len(region.shape) == 2]
        ignored = sorted(name.removesuffix(".weight") for name in linears if name.endswith(".weight"))
        eight = {"num_bits": 8, "type": "float", "symmetric": True}
        group = {
            "targets": ["Linear"],
            "weights": {**eight, "strategy": "channel", "dynamic": False},
            "input_activations": {**eight, "strategy": "token", "dynamic": True},
        }
        says = {"quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed"}
        wanted = {**self.left.config, "quantization_config": {**says, "config_groups": {"group_0": group}, "ignore": ignored}}
        if self.right.config != wanted:
            raise Different(f"{self.right.folder}/config.json: is not the source's with the quantization_config of this layout")


def _place(name: str, row: int, column: int, half: int) -> str:
    return f"{name}, byte {row * half * 2 + column} of the tensor (channel {row}, column {column})"


def _tables() -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    """For each difference of powers and byte of two codes: the nearest two E4M3 numbers, and how many of them are not the same.

    The low code's number is in the low byte.  [27 × 256] each.
    """
    byte = np.arange(256, dtype=np.uint8)
    positive = exactly.e4m3(np.arange(0x7F, dtype=np.uint8))
    pairs, inexact = [], []
    for difference in range(_LOW, _HIGH + 1):
        values = exactly.e2m1(byte) * np.ldexp(1.0, difference)
        away = np.abs(np.abs(values)[:, :, None] - positive)
        # The last of equally near codes is the even one if the first is odd: they follow each other.
        first = away.argmin(axis=-1)
        tie = np.take_along_axis(away, np.minimum(first + 1, 0x7E)[:, :, None], -1)[:, :, 0] == away.min(axis=-1)
        nearest = np.where(tie & (first % 2 == 1), first + 1, first)
        coded = (nearest | np.where(np.signbit(values), 128, 0)).astype(np.uint16)
        pairs.append(coded[:, 0] | coded[:, 1] << 8)
        inexact.append((away.min(axis=-1) != 0).sum(axis=-1).astype(np.uint8))
    return np.concatenate(pairs).astype("<u2"), np.concatenate(inexact)
