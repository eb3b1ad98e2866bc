"""Which packages are installed: found without importing them, and told apart by version and commit."""

from __future__ import annotations

import ast
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from fixpack.errors import ImageError, UsageError

CLONES = {"vllm": Path("/workspace/vllm-project"), "vllm_gaudi": Path("/workspace/vllm-gaudi")}
"""Where the upstream image's Dockerfile (vllm-gaudi, ``.cd/Dockerfile.ubuntu.pytorch.vllm``) clones what it then installs."""

_HEX = re.compile(r"[0-9a-f]{7,40}")


@dataclass(frozen=True)
class Package:
    """One installed package.  ``folder`` holds its ``__init__.py``."""

    name: str
    folder: Path
    version: str | None
    commit: str | None

    @property
    def build(self) -> str:
        """What it was built from."""
        return f"{self.name} {self.version or 'of unknown version'} at {self.commit or 'an unknown commit'}"

    def __str__(self) -> str:
        return f"{self.build} in {self.folder}"


def find(names: list[str], site: Path | None = None) -> dict[str, Package]:
    """The packages by name, in ``site`` or where Python finds them.  Raises :class:`ImageError` for those that are missing."""
    if site is not None and not site.is_dir():
        raise UsageError(f"--site-packages {site}: no such folder")
    found, missing = {}, []
    for name in names:
        folder = _folder(name, site)
        if folder is None:
            missing.append(f"{name} is not installed {f'in {site}' if site else 'for this Python'}")
        else:
            version, commit = _built_from(folder)
            found[name] = Package(name, folder, version, commit or _checked_out(name, folder, site))
    if missing:
        raise ImageError(*missing)
    return found


def check(packages: dict[str, Package], pinned: dict[str, dict[str, str]]) -> None:
    """Compare with what a profile pins.  Raises :class:`ImageError` that says what was found and what was expected."""
    wrong = []
    for name, pins in pinned.items():
        package = packages[name]
        for field, matches in (("version", _same_version), ("commit", _same_commit)):
            if field in pins and not matches(getattr(package, field), pins[field]):
                wrong.append(f"found {package}, expected {field} {pins[field]}")
                break
    if wrong:
        raise ImageError(*wrong)


def _folder(name: str, site: Path | None) -> Path | None:
    if site is not None:
        return site / name if (site / name / "__init__.py").is_file() else None
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec and spec.origin and spec.origin.endswith("__init__.py") else None


def _built_from(folder: Path) -> tuple[str | None, str | None]:
    """Version and commit as setuptools-scm wrote them into ``_version.py``; a build of a tagged commit may name none."""
    try:
        tree = ast.parse((folder / "_version.py").read_text("utf-8"))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None, None
    values: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            values.update({target.id: node.value.value for target in node.targets if isinstance(target, ast.Name)})
    version = values.get("__version__") or values.get("version")
    commit = values.get("__commit_id__") or values.get("commit_id") or (version or "").partition("+")[2].split(".")[0]
    commit = commit.removeprefix("g")
    return version, commit if _HEX.fullmatch(commit) else None


def _checked_out(name: str, folder: Path, site: Path | None) -> str | None:
    """The commit of the checkout that a package lies in, else of the clone that the image was built from."""
    clones = [folder.parent] if site else [folder.parent, CLONES.get(name, folder.parent)]
    return next((commit for clone in clones if (commit := _head(clone))), None)


def _head(clone: Path) -> str | None:
    """What ``git rev-parse HEAD`` prints, read from the files of ``.git`` (gitrepository-layout): git may not be installed."""
    try:
        place = clone / ".git"
        if place.is_file():  # of a worktree
            place = clone / place.read_text("utf-8").removeprefix("gitdir:").strip()
        head = (place / "HEAD").read_text("utf-8").strip()
        if head.startswith("ref:"):
            reference = head.removeprefix("ref:").strip()
            shared = place / "commondir"
            common = place / shared.read_text("utf-8").strip() if shared.is_file() else place
            if (common / reference).is_file():
                head = (common / reference).read_text("utf-8").strip()
            else:
                packed = [line.split() for line in (common / "packed-refs").read_text("utf-8").splitlines()]
                head = next((line[0] for line in packed if len(line) == 2 and line[1] == reference), "")
    except (OSError, ValueError):
        return None
    return head if _HEX.fullmatch(head) else None


def _same_version(found: str | None, pinned: str) -> bool:
    """A local label may follow, as in 0.30.0+hpu; 0.30.0rc1 and 0.30.0.post1 are other versions (PEP 440)."""
    return (found or "").partition("+")[0] == pinned


def _same_commit(found: str | None, pinned: str) -> bool:
    return found is not None and (found.startswith(pinned) or pinned.startswith(found))
