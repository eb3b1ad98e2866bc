"""Pages of fix profiles and of ports, drawn from their folders: Markdown for MkDocs.

``fixes/profiles/NAME.json`` and ``fixes/FIX/fix.json`` give ``fixes/NAME.md``; ``ports/**/PORT.md`` is shown as it is.
"""

from __future__ import annotations

import re
from pathlib import Path

from schema.fixes import Profile, profiles, read_fix
from schema.source import read_text


def pages(root: Path) -> dict[str, str]:
    """Every such page: its path among the pages of the site, and its Markdown.  Raises ``ProblemsError``."""
    made = {f"fixes/{profile.name}.md": profile_page(root, profile) for profile in profiles(root)}
    for file in sorted((root / "ports").glob("**/PORT.md")):
        place = file.parent.relative_to(root).as_posix()
        made[f"{place}.md"] = read_text(file, f"{place}/PORT.md")
    return made


def profile_page(root: Path, profile: Profile) -> str:
    """The page of a fix profile: the image it is for, its fixes in order, each with its cause and what is changed."""
    lines = [f"# Fix profile {profile.name}", "", f"{profile.summary.rstrip('.')}. In the container:", ""]
    lines += ["```bash", f'python3 "$COOKBOOK/fixes/apply_all.py" --profile {profile.name}', "```", ""]
    lines += ["All of the fixes are applied, or none. `--dry-run` shows the changes, `--verify` says whether they are there, and"]
    lines += ["`--revert` takes them back.", ""]
    if profile.image:
        lines += ["| The image must have | |", "|---|---|"]
        for package, pins in profile.image.items():
            lines.append(f"| `{package}` | {', '.join(f'{field} `{pin}`' for field, pin in pins.items())} |")
        lines.append("")
    lines += ["| Order | Fix | |", "|---|---|---|"]
    fixes = {name: read_fix(root, name) for name in [*profile.fixes, *profile.opt_in]}
    for number, name in enumerate(profile.fixes, 1):
        lines.append(f"| {number} | [{name}](#{name}) | {fixes[name].title} |")
    lines += [f"| opt-in | [{name}](#{name}) | {fixes[name].title} |" for name in profile.opt_in]
    for name, fix in fixes.items():
        lines += ["", f"## {name} {{ #{name} }}", "", f"**What goes wrong.** {fix.symptom}", "", f"**Why.** {fix.cause}", ""]
        lines += [f"**What is changed.** {fix.change}", "", f"**What is shown.** {fix.shown}", ""]
        lines += [f"Files: {', '.join(f'`{file}`' for file in fix.files)}", ""] if fix.files else []
        lines += [f"Upstream: {', '.join(f'[{_thread(link)}]({link})' for link in fix.upstream)}", ""] if fix.upstream else []
    return "\n".join(lines) + "\n"


def _thread(link: str) -> str:
    """What people call an upstream thread: ``owner/name#number``."""
    match = re.fullmatch(r"https://github\.com/([^/]+/[^/]+)/(?:issues|pull)/(\d+)", link)
    return f"{match[1]}#{match[2]}" if match else link
