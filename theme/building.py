"""Building the whole site, as ``build_site.py`` without arguments does."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path


def build_site(root: str) -> int:
    """Build into ``_site/`` with the rules of ``mkdocs build --strict``.  Returns the exit code; what is wrong is printed."""
    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort, MkDocsException

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    handler.setLevel(logging.WARNING)
    logging.getLogger("mkdocs").addHandler(handler)
    try:
        config = load_config(config_file=str(Path(root) / "mkdocs.yml"), strict=True)
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
        config.plugins.on_shutdown()
    except (Abort, MkDocsException) as error:
        if str(error):
            print(f"build_site.py: {error}", file=sys.stderr)
        return 1
    finally:
        logging.getLogger("mkdocs").removeHandler(handler)
    print(f"built {os.path.relpath(config.site_dir)}")
    return 0
