"""Building the site for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from schema.loading import ROOT


def built_site(folder: Path, root: Path = ROOT) -> Path:
    """Build a repository's site strictly into a folder; returns the folder."""
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", str(root / "mkdocs.yml"), "-d", str(folder)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return folder
