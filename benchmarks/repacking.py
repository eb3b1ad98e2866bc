"""The repack beside ``cp -r``, beside reading, and beside the naive way, over one synthetic release of the real proportions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measuring import Line, say
from benchmarks.quarktrees import KIMI, Shape, write_quark  # noqa: F401 - the first and last for _write

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "ports/kimi-k2-7/convert/repack_quark_mxfp4.py"
SHAPE = Shape(layers=3, dense=1, experts=100, hidden=7168, moe=2048, wide=4096, rank=512, vocabulary=8192)
"""Two of Kimi's layers with a quarter of their experts: 5 GB, of which experts are 95 of 100 bytes."""

NAIVE = """
import sys
from collections import defaultdict
from pathlib import Path
import torch
from safetensors import safe_open
from safetensors.torch import save_file
source, made = map(Path, sys.argv[1:])
made.mkdir()
tensors = {}
for file in sorted(source.glob("*.safetensors")):
    with safe_open(file, "pt") as opened:
        tensors.update({name: opened.get_tensor(name) for name in opened.keys()})
parts = defaultdict(dict)
for name in [name for name in tensors if ".experts." in name and ".shared" not in name]:
    layer, rest = name.split(".experts.")
    expert, side, kind = rest.split(".")
    parts[layer, "w2" if side == "down_proj" else "w13", kind][int(expert), side != "gate_proj"] = tensors.pop(name)
for (layer, which, kind), found in parts.items():
    experts = 1 + max(expert for expert, _ in found)
    rows = torch.cat([found[key] for key in sorted(found)])
    tensors[f"{layer}.experts.{which}_{kind}"] = rows.reshape(experts, -1, rows.shape[-1])
save_file(tensors, made / "model.safetensors")
"""
"""Load everything, concatenate, save; it leaves what is not an expert as it is."""


PLAN = """
import gc, sys
gc.disable()  # as the program does
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from ckpt.quark import fused_plan
from ckpt.source import read_checkpoint
print(fused_plan(read_checkpoint(Path(sys.argv[2]))).size)
"""


def repacking(_: int) -> Iterator[Line]:
    """Bytes a second of the output, wall time with the disk synced; medians of three rounds, taken in turns."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as name:
        base = Path(name)
        say("writing a synthetic release of 5 GB")
        source, made, copy = base / "source", base / "made", base / "copy"
        _write("SHAPE", source)
        size = _size(source)
        repack = [sys.executable, str(TOOL), "--src", str(source), "--dst", str(made)]
        rates: dict[str, list[float]] = {}
        peak = 0
        for cold in (False, True):
            for _round in range(3):
                for what, command, place in (("cp", ["cp", "-r", str(source), str(copy)], copy), ("repack", repack, made)):
                    shutil.rmtree(place, ignore_errors=True)
                    (_forget if cold else _read)([source])
                    subprocess.run(["/bin/sync"], check=True)
                    taken, memory = _timed(command, synced=True)
                    rates.setdefault(f"{what} {'cold' if cold else 'warm'}", []).append(_size(place) / taken)
                    if what == "repack":
                        peak = max(peak, memory)
                    if what == "cp":
                        shutil.rmtree(copy)
        median = {what: sorted(found)[1] for what, found in rates.items()}
        for state, least in (("warm", 0.95), ("cold", 0.9)):
            ratio = median[f"cp {state}"] / median[f"repack {state}"]
            shown = ", ".join(f"{what} {median[f'{what} {state}'] / 1e6:,.0f} MB/s" for what in ("cp", "repack"))
            yield Line(f"cp -r / repack, bytes written a second, {state}", ratio, 1 / least, "x", shown)
        reading, comparing = [], []
        for _round in range(3):
            _forget([source, made])
            reading.append(_clock(lambda: _read([source, made])))
            _forget([source, made])
            taken, memory = _timed([*repack, "--verify"])
            comparing.append(taken)
            peak = max(peak, memory)
        shown = f"verify {sorted(comparing)[1]:.1f} s, reading {sorted(reading)[1]:.1f} s, cold"
        yield Line("--verify / reading both sides once", sorted(comparing)[1] / sorted(reading)[1], 1 / 0.9, "x", shown)
        shutil.rmtree(made)
        _read([source])
        taken, memory = _timed([sys.executable, "-c", NAIVE, str(source), str(copy)], synced=True)
        naive = _size(copy) / taken
        shown = f"loading, cat, save_file: {naive / 1e6:,.0f} MB/s with {memory / 1000:,.0f} MB of memory; {size / 1e9:.1f} GB in"
        yield Line("the naive way / repack, bytes written a second, warm", naive / median["repack warm"], 1, "x", shown)
        yield Line("peak memory of the repack and of --verify", peak / 1000, 256, "MB", "")
        shutil.rmtree(source)
        say("writing the headers of the real release")
        headers = base / "headers"
        _write("KIMI", headers, "data=False")
        # Not a dry run, which ends with an error where 550 GB are not free.
        taken, memory = _timed([sys.executable, "-c", PLAN, str(TOOL.parent), str(headers)])
        yield Line("the plan for 61 layers of 384 experts", taken, 3, "s", f"{memory / 1000:,.0f} MB of memory")


def _write(shape: str, folder: Path, *options: str) -> None:
    """In a process of its own: what this one has used counts as the peak of every process that it starts."""
    code = f"from benchmarks.repacking import *; write_quark(Path({str(folder)!r}), {', '.join([shape, *options])})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def _timed(command: list[str], *, synced: bool = False) -> tuple[float, int]:
    """Wall seconds, and peak memory in kB."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{said.decode(errors='replace')[-2000:]}")
    if synced:
        subprocess.run(["/bin/sync"], check=True)
    return time.perf_counter() - begin, usage.ru_maxrss


def _clock(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _read(folders: list[Path]) -> None:
    for folder in folders:
        for file in sorted(folder.glob("*.safetensors")):
            with file.open("rb", buffering=0) as opened:
                buffer = bytearray(8 << 20)
                while opened.readinto(buffer):
                    pass


def _forget(folders: list[Path]) -> None:
    """Take the files out of the page cache."""
    for file in [file for folder in folders for file in folder.glob("*.safetensors")]:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
