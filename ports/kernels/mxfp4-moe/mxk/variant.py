"""The shapes that a kernel library is built for: one JSON file a model, in ``variants/``."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "variants"
GROUP = 32
"""Elements along K that share a scale: OCP Microscaling Formats 1.0, section 5.4."""
TILE = 512
"""Output columns that one index point of a kernel computes: two codes a byte of a vector of 256 bytes."""


class VariantError(Exception):
    """One line that names the file, the cause and the cure."""


@dataclass(frozen=True)
class Variant:
    """One model's shapes.

    ``hidden`` is the width of the model and ``intermediate`` that of one expert; ``experts`` is how many a layer has,
    ``local_experts`` how many of them a rank holds, ``top_k`` how many a token is sent to, and ``max_tokens`` how many tokens a
    call may have.
    """

    name: str
    hidden: int
    intermediate: int
    experts: int
    local_experts: int
    top_k: int
    max_tokens: int


def names(folder: Path = FOLDER) -> list[str]:
    """Every variant there is."""
    return sorted(path.stem for path in folder.glob("*.json"))


def load_variant(name: str, folder: Path = FOLDER) -> Variant:
    """Read ``variants/NAME.json``.  Raises :class:`VariantError`."""
    path = folder / f"{name}.json"
    if name not in names(folder):
        raise VariantError(f"{name}: no such variant; there are {', '.join(names(folder))}")
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise VariantError(f"{path}: can not be read: {error}") from None
    wanted = [field.name for field in fields(Variant) if field.name != "name"]
    if not isinstance(found, dict) or sorted(found) != sorted(wanted):
        raise VariantError(f"{path}: must be a mapping of {', '.join(wanted)}, and of nothing else")
    for key in wanted:
        if type(found[key]) is not int or found[key] < 1:
            raise VariantError(f"{path}: {key} is {found[key]!r}, and must be a whole number from 1 on")
    variant = Variant(name, **found)
    for what, size in (("hidden", variant.hidden), ("intermediate", variant.intermediate)):
        if size % TILE:
            raise VariantError(f"{path}: {what} is {size}, and must be a multiple of {TILE}, the columns of a tile")
    if not variant.top_k <= variant.experts or variant.experts % variant.local_experts:
        raise VariantError(
            f"{path}: top_k must be at most experts, and experts a multiple of local_experts: "
            f"{variant.top_k}, {variant.experts}, {variant.local_experts}"
        )
    return variant
