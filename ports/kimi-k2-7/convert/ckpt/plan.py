"""What is to be written: files, the tensors in each, and for each stretch of a tensor where its bytes come from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ckpt.errors import CheckpointError
from ckpt.headers import Tensor, byte_count, make_header

Kind = Literal["copy", "scales", "mxfp4", "fp8", "channels"]


@dataclass(frozen=True, slots=True)
class Form:
    """An FP8 format with four exponent and three mantissa bits: its largest number, and whether numbers may be rounded to it."""

    largest: int
    rounds: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a tensor: ``size`` bytes at byte ``at`` of it.

    ``kind``: ``copy`` takes the bytes of one tensor as they are; ``scales`` makes E8M0 bytes of one; ``mxfp4`` and ``fp8`` make
    BF16 of a weight and its scales; ``channels`` makes FP8 of rows of a fused weight and its scales, from ``row`` on, and the
    scales of those rows, which begin the tensor ``scales``.
    """

    kind: Kind
    sources: tuple[Tensor, ...]
    at: int
    size: int
    row: int = 0
    scales: str = ""
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """One tensor to be written."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: Sequence[Piece]

    @property
    def size(self) -> int:
        """In bytes."""
        return byte_count(self.dtype, self.shape)


@dataclass(frozen=True)
class File:
    """One file to be written; its tensors in the order of their data."""

    name: str
    targets: Sequence[Target]
    facts: Mapping[str, str] = field(default_factory=dict)
    """What the header says beside the tensors."""

    @cached_property
    def _made(self) -> tuple[bytes, dict[str, int]]:
        return make_header([(target.name, target.dtype, target.shape) for target in self.targets], {"format": "pt", **self.facts})

    @property
    def header(self) -> bytes:
        """The bytes before the data."""
        return self._made[0]

    @property
    def starts(self) -> dict[str, int]:
        """Where each tensor's first byte is, from the beginning of the file."""
        return self._made[1]

    @cached_property
    def size(self) -> int:
        """Of the whole file, in bytes."""
        return len(self.header) + sum(target.size for target in self.targets)


@dataclass(frozen=True)
class Plan:
    """A checkpoint to be written from another.  Raises :class:`CheckpointError` if two tensors would have one name."""

    tool: str
    """Which program with which options that matter."""
    files: Sequence[File]
    config: dict[str, Any]
    others: Sequence[Path]
    """Files that are copied as they are, from the source's folder on."""
    source: Path
    fingerprint: str
    continues: Sequence[str] = ()
    """Tools whose unfinished work this one may go on with: what they wrote it would write too."""

    def __post_init__(self) -> None:
        names: set[str] = set()
        for target in (target for file in self.files for target in file.targets):
            if target.name in names:
                raise CheckpointError(f"{self.source}: {target.name}: two tensors would get this name")
            names.add(target.name)

    @property
    def size(self) -> int:
        """Of all files with tensors, in bytes."""
        return sum(file.size for file in self.files)

    @property
    def tensor_bytes(self) -> int:
        """Of all tensors."""
        return sum(target.size for file in self.files for target in file.targets)

    @property
    def index(self) -> bytes:
        """The index of the new checkpoint; ``total_size`` is the bytes of all tensors."""
        placed = {target.name: file.name for file in self.files for target in file.targets}
        return (
            json.dumps({"metadata": {"total_size": self.tensor_bytes}, "weight_map": dict(sorted(placed.items()))}, indent=1)
            + "\n"
        ).encode()

    @property
    def configuration(self) -> bytes:
        """The text of config.json, in ASCII: it may hold half a surrogate pair, which UTF-8 does not have."""
        return (json.dumps(self.config, indent=1) + "\n").encode("ascii")
