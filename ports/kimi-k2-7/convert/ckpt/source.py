"""A checkpoint's folder: its configuration, its index, and every tensor of every shard, each checked against the others."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpt.errors import CheckpointError
from ckpt.headers import Tensor, read_header, regular_size, unique_keys

INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
RECORD = "conversion.json"
"""Says what a folder is being made from, and by what."""
LOCK = ".conversion.lock"
LEFT_OUT = (".cache", ".git")
"""Folders of what fetched a checkpoint, not of the checkpoint."""


@dataclass(frozen=True)
class Checkpoint:
    """What lies in a checkpoint's folder."""

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, Tensor]
    shards: list[Path]
    others: list[Path]
    """Files that are neither shards, index nor configuration, from the folder on; each can be read."""

    def fingerprint(self) -> str:
        """Tells this source from another, or from itself after a change: by sizes and times of change of the shards."""
        total = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode())
        for path in self.shards:
            status = path.stat()
            total.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
        return total.hexdigest()


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint's folder: headers alone, no tensor.  Raises :class:`CheckpointError`.

    Links are followed, as a hub's snapshot is made of them.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder")
    config = read_json(folder / CONFIG)
    present = {path.name: path for path in folder.iterdir() if path.name.endswith(".safetensors")}
    if (folder / INDEX).exists():
        tensors = _indexed(folder, present)
    else:
        if len(present) > 1:
            raise CheckpointError(f"{folder}: holds {len(present)} shards and no {INDEX}: fetch it")
        tensors = {name: tensor for path in present.values() for name, tensor in read_header(path).items()}
    if not tensors:
        raise CheckpointError(f"{folder}: holds no tensor")
    ours = {*present, INDEX, CONFIG, RECORD, LOCK}
    others = sorted(path for path in _files(folder) if str(path) not in ours)
    for path in others:
        _check_readable(folder / path)
    return Checkpoint(folder, config, tensors, [present[name] for name in sorted(present)], others)


def _files(folder: Path) -> Iterator[Path]:
    """Whatever lies in a folder and in those below it, from it on.  Links are followed, but not back to where they come from."""

    def fails(error: OSError) -> None:
        raise CheckpointError(f"{error.filename}: can not be read: {(error.strerror or str(error)).lower()}") from None

    for name, folders, files in os.walk(folder, onerror=fails, followlinks=True):
        here = Path(name)
        folders[:] = sorted(each for each in folders if each not in LEFT_OUT)
        for each in folders:
            if (here / each).is_symlink() and (here / each).resolve() in (here.resolve(), *here.resolve().parents):
                raise CheckpointError(f"{here / each}: is a link to a folder that it lies in: remove it")
        for each in files:
            yield (here / each).relative_to(folder)


def _check_readable(path: Path) -> None:
    try:
        regular_size(path)
        with open(path, "rb"):
            pass
    except OSError as error:
        raise CheckpointError(f"{path}: can not be read: {(error.strerror or str(error)).lower()}") from None


def _indexed(folder: Path, present: dict[str, Path]) -> dict[str, Tensor]:
    """The tensors of all shards, where the index says they are; neither has one that the other has not."""
    index = folder / INDEX
    placed = read_json(index).get("weight_map")
    if not isinstance(placed, dict) or not all(isinstance(shard, str) for shard in placed.values()):
        raise CheckpointError(f"{index}: has no weight_map of tensors to shards")
    for shard in sorted({*placed.values()} - {*present}):
        raise CheckpointError(f"{folder / shard}: the index names this shard, and it is not there: fetch it")
    for shard in sorted({*present} - {*placed.values()}):
        raise CheckpointError(f"{folder / shard}: the index does not name this shard: remove it, or fetch the index again")
    tensors: dict[str, Tensor] = {}
    for shard in sorted(present):
        for name, tensor in read_header(present[shard]).items():
            if name in tensors:
                raise CheckpointError(f"{present[shard]}: {name} stands in {tensors[name].path.name} as well")
            if placed.get(name) != shard:
                where = f"in {placed[name]}" if name in placed else "nowhere"
                raise CheckpointError(f"{present[shard]}: holds {name}, which by the index is {where}")
            tensors[name] = tensor
    for name in sorted({*placed} - {*tensors}):
        raise CheckpointError(f"{folder / placed[name]}: has no {name}, which the index says is in it")
    return tensors


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds a mapping.  Raises :class:`CheckpointError`."""
    try:
        regular_size(path)
        data = json.loads(path.read_text("utf-8"), object_pairs_hook=unique_keys)
    except OSError as error:
        raise CheckpointError(f"{path}: can not be read: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: is no mapping")
    return data
