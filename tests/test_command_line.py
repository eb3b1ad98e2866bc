"""The command line, as its own process: what it prints, where, and its exit codes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from schema.block import describe, render, selections
from schema.loading import load
from schema.selecting import resolve
from support import GAUDI, MINIMAL, RICH, ROOT, SGLANG, changed, run

CHEAP = ("--export-shell", GAUDI)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the cookbook to change."""
    target = tmp_path / "copy"
    for folder in ("schema", "recipes", "fixes"):
        shutil.copytree(ROOT / folder, target / folder)
    shutil.copy(ROOT / "build_site.py", target)
    return target


def block(identity: str, **choices: str) -> str:
    """What ``--export-shell`` must print."""
    program = load(ROOT / "recipes" / identity / "recipe.yaml").program
    return render(program, resolve(program["axes"], {name.replace("_", "-"): value for name, value in choices.items()}))


def succeeds(*arguments: str | Path, cwd: Path | None = None, root: Path = ROOT) -> str:
    """Run a command that must work and say nothing on standard error; returns its output."""
    done = run(*arguments, cwd=cwd, root=root)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def fails(code: int, *arguments: str | Path, cwd: Path | None = None, root: Path = ROOT) -> str:
    """Run a command that must fail without output; returns what it said."""
    done = run(*arguments, cwd=cwd, root=root)
    assert (done.returncode, done.stdout) == (code, "")
    assert "Traceback" not in done.stderr
    return done.stderr


FAULT = f"recipes/{GAUDI}/recipe.yaml:3:1: ordr: unknown key, did you mean order?"


def break_recipe(root: Path) -> Path:
    """Put one fault into the third line of a recipe of a copy."""
    file = root / "recipes" / GAUDI / "recipe.yaml"
    file.write_text("# A comment.\n\nordr: 2\n" + file.read_text(encoding="utf-8"), encoding="utf-8")
    return file


# --- export-shell ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wanted",
    [
        GAUDI,
        GAUDI + "/",
        "AMD/kimi-k2.7-code-mxfp4",
        f"recipes/{GAUDI}",
        f"recipes/{GAUDI}/",
        f"./recipes/{GAUDI}/recipe.yaml",
        ROOT / "recipes" / GAUDI,
        ROOT / "recipes" / GAUDI / "recipe.yaml",
    ],
)
def test_export_by_id_folder_and_file(wanted: str | Path) -> None:
    assert succeeds("--export-shell", wanted) == block(GAUDI)


def test_export_from_another_folder(tmp_path: Path) -> None:
    assert succeeds("--export-shell", GAUDI, cwd=tmp_path) == block(GAUDI)
    assert succeeds("--export-shell", ".", cwd=ROOT / "recipes" / GAUDI) == block(GAUDI)
    assert succeeds("--export-shell", "recipe.yaml", cwd=ROOT / "recipes" / GAUDI) == block(GAUDI)


@pytest.mark.parametrize(
    ("arguments", "choices"),
    [
        (["--set", "hardware=B300"], {"hardware": "B300"}),
        (["--set", "HARDWARE=b300", "--set", "hardware=B300"], {"hardware": "B300"}),
        (["--set=hardware=MI355X", "--set", "quantization=int4"], {"hardware": "MI355X", "quantization": "INT4"}),
        (["--set", "dp-attention=on", "--set", "tool-parser=off"], {"dp_attention": "on", "tool_parser": "off"}),
    ],
)
def test_export_of_a_selection(arguments: list[str], choices: dict[str, str]) -> None:
    assert succeeds("--export-shell", SGLANG, *arguments) == block(SGLANG, **choices)
    assert succeeds(*arguments, "--export-shell", SGLANG) == block(SGLANG, **choices)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("hardwear=H200", "no axis 'hardwear', did you mean hardware?"),
        ("hardware=H20", "no option 'H20' on axis hardware, did you mean H200?"),
        ("hardware", "--set hardware: write it as AXIS=OPTION"),
        ("=H200", "--set =H200: write it as AXIS=OPTION"),
        ("hardware=", "no option '' on axis hardware"),
        ("quantization=MXFP4", "quantization=MXFP4 is not offered: AMD's MXFP4 release was tested"),
        ("image=v0.5.9-rocm700-mi30x", "The source names no image for NVIDIA hardware"),
    ],
)
def test_choices_that_can_not_be_made(item: str, message: str) -> None:
    said = fails(2, "--export-shell", SGLANG, "--set", item)
    assert message in said
    assert said.count("\n") == 1


def test_an_axis_set_twice() -> None:
    said = fails(2, "--export-shell", SGLANG, "--set", "hardware=H200", "--set", "HARDWARE=B300")
    assert said == "build_site.py: --set HARDWARE=B300: HARDWARE is set to H200 as well\n"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("amd/Kimi-K2.7-Code-MXFP", f"no recipe 'amd/Kimi-K2.7-Code-MXFP', did you mean {GAUDI}"),
        ("Kimi-K2.7-Code", "did you mean"),
        ("../etc/passwd", "no recipe '../etc/passwd'"),
        ("amd/..", "no recipe 'amd/..'"),
        ("nothing", f"(known: {GAUDI}, {SGLANG})"),
        ("recipes", "no recipe 'recipes'"),
    ],
)
@pytest.mark.parametrize("command", ["--export-shell", "--export-json"])
def test_unknown_recipes(command: str, wanted: str, message: str) -> None:
    said = fails(2, command, wanted)
    assert message in said
    assert said.count("\n") == 1


def test_no_name_is_no_recipe() -> None:
    assert "no recipe ''" in fails(2, "--export-shell", "")


def test_a_recipe_of_another_repository(tmp_path: Path) -> None:
    file = tmp_path / "recipes/acme/Small/recipe.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(MINIMAL, encoding="utf-8")
    assert succeeds("--export-shell", file).endswith("\nvllm serve acme/Small\n")
    assert "# acme/Small on vLLM on Gaudi" in succeeds("--export-shell", ".", cwd=file.parent)


def test_a_recipe_with_problems_is_not_exported(copy: Path) -> None:
    file = break_recipe(copy)
    for command in ("--export-shell", "--export-json"):
        said = fails(1, command, GAUDI, root=copy)
        assert said == FAULT + "\n"
    target = copy / "launch.sh"
    target.write_text("old")
    fails(1, "--export-shell", file, "-o", target, root=copy)
    assert target.read_text() == "old"
    assert fails(1, "--export-json", "-o", target, root=copy).count("\n") == 1
    assert target.read_text() == "old"


# --- files -----------------------------------------------------------------------------------------------------------


def test_output_file_is_whole_and_executable(tmp_path: Path) -> None:
    target = tmp_path / "launch.sh"
    target.write_text("x" * 100_000)
    assert succeeds(*CHEAP, "-o", target) == ""
    assert target.read_text(encoding="utf-8") == block(GAUDI)
    assert os.access(target, os.X_OK)
    assert list(tmp_path.iterdir()) == [target]
    assert succeeds("--export-json", GAUDI, "--output", tmp_path / "data.json") == ""
    assert not (tmp_path / "data.json").stat().st_mode & 0o111


def test_output_keeps_who_may_read_it(tmp_path: Path) -> None:
    target = tmp_path / "launch.sh"
    for before, after in ((0o600, 0o700), (0o640, 0o750), (0o444, 0o444)):
        target.write_text("old")
        target.chmod(before)
        if before & 0o200 or os.geteuid() == 0:
            succeeds(*CHEAP, "-o", target)
            assert target.stat().st_mode & 0o777 == (after if before & 0o200 else 0o555)
        else:
            assert fails(1, *CHEAP, "-o", target) == f"build_site.py: {target}: permission denied\n"
        target.unlink()


def test_output_through_a_link_that_leads_to_itself(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    assert "too many levels of symbolic links" in fails(1, *CHEAP, "-o", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()


def test_a_dash_is_standard_output(tmp_path: Path) -> None:
    assert succeeds(*CHEAP, "-o", "-", cwd=tmp_path) == block(GAUDI)
    assert succeeds("--export-json", GAUDI, "-o", "-", cwd=tmp_path).startswith("{")
    assert not list(tmp_path.iterdir())


def test_closed_standard_output_is_one_line() -> None:
    done = subprocess.run(
        ["/bin/bash", "-c", '"$@" >&-', "bash", sys.executable, ROOT / "build_site.py", *CHEAP], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (1, "build_site.py: standard output is closed\n")


def test_output_through_a_link_leaves_the_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("launch.sh")
    succeeds(*CHEAP, "-o", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "launch.sh").read_text(encoding="utf-8") == block(GAUDI)


def test_output_is_not_touched_by_a_wrong_choice(tmp_path: Path) -> None:
    target = tmp_path / "launch.sh"
    fails(2, *CHEAP, "--set", "kernels=maybe", "-o", target)
    assert not target.exists()
    target.write_text("old")
    fails(2, *CHEAP, "--set", "kernels=maybe", "-o", target)
    assert target.read_text() == "old"


def test_output_to_a_pipe_is_written_into_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text(encoding="utf-8")), daemon=True)
    reader.start()
    succeeds(*CHEAP, "-o", pipe)
    reader.join(10)
    assert found == [block(GAUDI)]
    assert pipe.is_fifo()


def test_output_to_standard_output_by_its_name() -> None:
    assert succeeds(*CHEAP, "-o", "/dev/stdout") == block(GAUDI)


@pytest.mark.parametrize("command", [CHEAP, ("--export-json", GAUDI), ("--schema",)])
def test_output_that_can_not_be_written_is_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("")
    for target, why in (
        (tmp_path / "none/launch.sh", "no such file or directory"),
        (tmp_path / "file/launch.sh", "not a directory"),
        (tmp_path, "is a directory"),
    ):
        assert fails(1, *command, "-o", target) == f"build_site.py: {target}: {why}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_output_into_a_closed_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert fails(1, *CHEAP, "-o", tmp_path / "x") == f"build_site.py: {tmp_path / 'x'}: permission denied\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line() -> None:
    assert fails(1, *CHEAP, "-o", "/dev/full") == "build_site.py: /dev/full: no space left on device\n"
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize("command", [["--export-json"], ["--export-shell", GAUDI], ["--schema"], ["--list"], ["--help"]])
def test_a_reader_that_left_is_not_complained_of(command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        program = [sys.executable, str(ROOT / "build_site.py"), *command]
        done = subprocess.run(program, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert done.returncode in (0, 1)
    assert done.stderr == ""


def test_the_first_line_alone() -> None:
    script = f"{sys.executable} {ROOT / 'build_site.py'} --export-json | head -n 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


# --- json, list, schema, help ----------------------------------------------------------------------------------------


def test_export_json() -> None:
    programs = [load(ROOT / "recipes" / name / "recipe.yaml").program for name in (GAUDI, SGLANG)]
    assert json.loads(succeeds("--export-json", GAUDI)) == describe(programs[0])
    assert json.loads(succeeds("--export-json")) == {"recipes": [describe(program) for program in programs]}


def test_every_selection_of_the_json_is_what_export_shell_prints() -> None:
    described = json.loads(succeeds("--export-json", GAUDI))["selections"]
    assert len(described) == 2
    for selection in described:
        sets = [f"--set={axis}={option}" for axis, option in selection["selection"].items()]
        assert succeeds("--export-shell", GAUDI, *sets) == selection["shell"]


def test_list_names_every_recipe() -> None:
    lines = succeeds("--list").splitlines()
    assert [line.split()[0] for line in lines] == ["RECIPE", GAUDI, SGLANG]
    assert "Gaudi 2" in lines[1]
    assert "MI355X" in lines[2]
    assert "58" in lines[2].split()


def test_list_with_problems(copy: Path) -> None:
    break_recipe(copy)
    assert "ordr: unknown key" in fails(1, "--list", root=copy)


def test_schema_is_the_committed_one(tmp_path: Path) -> None:
    committed = (ROOT / "schema/recipe.schema.json").read_text(encoding="utf-8")
    assert succeeds("--schema") == committed
    succeeds("--schema", "-o", tmp_path / "s.json")
    assert (tmp_path / "s.json").read_text(encoding="utf-8") == committed
    bare = subprocess.run([sys.executable, "-OO", "build_site.py", "--schema"], cwd=ROOT, capture_output=True, text=True)
    assert bare.stdout == committed, "a Python without docstrings gives another"


def test_help_names_every_command() -> None:
    said = succeeds("--help")
    for option in ("--check", "--list", "--export-shell", "--export-json", "--schema", "--set", "--output", "--format"):
        assert option in said
    assert succeeds("-h") == said


@pytest.mark.parametrize(
    "arguments",
    [
        ["--chek"],
        ["build"],
        ["--exp", GAUDI],
        ["--export-shell"],
        ["--export-shell", GAUDI, "--set"],
        ["--export-shell", GAUDI, "extra"],
        ["--export-shell", GAUDI, "--list"],
        ["--check", "--list"],
        ["--set", "kernels=on"],
        ["--export-json", GAUDI, "--set", "kernels=off"],
        ["--format", "json"],
        ["--check", "--format", "xml"],
        ["--list", "-o", "x"],
        ["--check", "-o", "x"],
    ],
)
def test_what_is_no_command(arguments: list[str]) -> None:
    assert "build_site.py: error: " in fails(2, *arguments)


# --- check -----------------------------------------------------------------------------------------------------------


def test_check_of_all() -> None:
    done = run("--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "2 recipes: no problem in 60 selections\n")


@pytest.mark.parametrize("path", [f"recipes/{GAUDI}", f"recipes/{GAUDI}/recipe.yaml", "recipes/amd", GAUDI, ROOT / "recipes/amd"])
def test_check_of_one(path: str | Path) -> None:
    done = run("--check", path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "1 recipe: no problem in 2 selections\n")


def test_check_from_inside_a_recipe() -> None:
    for path in (".", "recipe.yaml", f"../{GAUDI.partition('/')[2]}"):
        done = run("--check", path, cwd=ROOT / "recipes" / GAUDI)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "1 recipe: no problem in 2 selections\n")


def test_check_finds_every_problem_in_each_format(copy: Path) -> None:
    break_recipe(copy)
    guide = copy / "recipes" / SGLANG / "guide.md"
    guide.write_text(changed(guide.read_text(encoding="utf-8"), "{{ client }}", "{{ clint }}"), encoding="utf-8")
    done = run("--check", root=copy)
    assert done.returncode == 1
    assert done.stderr == "2 recipes: 2 problems\n"
    first, second = done.stdout.splitlines()
    assert first == FAULT
    assert second.startswith(f"recipes/{SGLANG}/guide.md:")
    done = run("--check", "--format", "json", root=copy)
    assert (done.returncode, done.stderr) == (1, "")
    data = json.loads(done.stdout)
    assert [item["path"] for item in data] == [f"recipes/{GAUDI}/recipe.yaml", f"recipes/{SGLANG}/guide.md"]
    assert data[0] == {
        "path": f"recipes/{GAUDI}/recipe.yaml", "line": 3, "column": 1, "field": "ordr",
        "message": "unknown key, did you mean order?",
    }  # fmt: skip
    done = run("--check", "--format", "github", root=copy)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[0] == (
        f"::error file=recipes/{GAUDI}/recipe.yaml,line=3,col=1,title=recipe::ordr: unknown key, did you mean order?"
    )


def test_check_without_problems_is_an_empty_list() -> None:
    assert json.loads(run("--check", f"recipes/{GAUDI}", "--format", "json").stdout) == []
    assert run("--check", f"recipes/{GAUDI}", "--format", "github").stdout == ""


def test_check_of_what_is_not_there() -> None:
    assert "no such file or folder" in fails(2, "--check", "recipes/none")
    assert "did you mean" in fails(2, "--check", "amd/Kimi-K2.7-Code-MXFP")
    assert "no recipe.yaml in or under" in fails(2, "--check", "schema/vocabulary")


def test_check_of_another_schema(copy: Path) -> None:
    (copy / "schema/recipe.schema.json").write_text("{}")
    done = run("--check", root=copy)
    assert done.returncode == 1
    assert "schema/recipe.schema.json:1:1: is not what the models give; run: python build_site.py --schema" in done.stdout


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"a: [", b"\0", b"- 1", b"a: &a [*a]", b"? [a]", b"summary: \xc3(", b"[" * 100_000]
)
def test_check_of_what_is_no_recipe(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "recipes/acme/Small/recipe.yaml"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    done = run("--check", file)
    assert (done.returncode, done.stderr) == (1, "1 recipe: 1 problem\n")
    assert done.stdout.startswith("recipes/acme/Small/recipe.yaml:")


@pytest.mark.parametrize("arguments", [("--check",), ("--list",), ("--schema",), ("--export-json",), CHEAP])
def test_a_broken_vocabulary_is_said_of_its_file(copy: Path, arguments: tuple[str, ...]) -> None:
    with (copy / "schema/vocabulary/hardware.yaml").open("a") as file:
        file.write("gaudi9: {titel: Gaudi 9}\n")
    assert "schema/vocabulary/hardware.yaml:" in fails(1, *arguments, root=copy)


# --- the quick path --------------------------------------------------------------------------------------------------

IMPORTED = """
import runpy, sys
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print(*sorted(set(sys.modules)), file=sys.stderr)
"""


def imported(root: Path, *arguments: str) -> tuple[str, set[str]]:
    """What a command prints, and the modules that it imports."""
    command = [sys.executable, "-c", IMPORTED, str(root / "build_site.py"), *arguments]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert done.returncode == 0
    return done.stdout, set(done.stderr.split())


def test_a_kept_block_is_exported_with_little(copy: Path) -> None:
    assert succeeds("--export-shell", SGLANG, root=copy) == block(SGLANG)
    output, modules = imported(copy, "--export-shell", SGLANG, "--set", "hardware=MI355X")
    assert output == block(SGLANG, hardware="MI355X")
    assert "schema.block" in modules
    assert not modules & {"argparse", "jinja2", "mkdocs", "pydantic", "yaml"}


def test_an_export_imports_nothing_of_the_site(copy: Path) -> None:
    output, modules = imported(copy, *CHEAP)
    assert output == block(GAUDI)
    assert "pydantic" in modules
    assert not modules & {"jinja2", "mkdocs", "theme"}


def entries(root: Path) -> list[Path]:
    return sorted((root / ".cookbook-cache/programs").iterdir())


def test_a_changed_guide_is_read_anew(copy: Path) -> None:
    succeeds(*CHEAP, root=copy)
    with (copy / "recipes" / GAUDI / "guide.md").open("a", encoding="utf-8") as guide:
        guide.write("{{ nope }}\n")
    assert "{{ nope }}: 'nope' is not of the form" in fails(1, *CHEAP, root=copy)


def test_no_recipes_at_all(copy: Path) -> None:
    shutil.rmtree(copy / "recipes")
    assert (
        "recipes:1:1: can not be read: no such file or directory"
        in run("--check", root=copy).stderr + run("--check", root=copy).stdout
    )


def test_without_the_folder_on_the_path(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "build_site.py", *CHEAP],
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, block(GAUDI))


def test_a_recipe_by_a_link_out_of_the_repository(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("token: abc\n")
    (copy / "recipes/l/m").mkdir(parents=True)
    (copy / "recipes/l/m/recipe.yaml").symlink_to(tmp_path / "secret")
    done = run("--check", root=copy)
    assert done.returncode == 1 and "recipes/l/m/recipe.yaml:1:1: is reached by a link that leads out" in done.stdout
    assert "abc" not in done.stdout


def test_a_changed_recipe_is_read_anew(copy: Path) -> None:
    file = copy / "recipes" / GAUDI / "recipe.yaml"
    assert succeeds(*CHEAP, root=copy) == block(GAUDI)
    before = file.stat()
    file.write_text(changed(file.read_text(encoding="utf-8"), 'value: "0.9"', 'value: "0.8"'), encoding="utf-8")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert succeeds(*CHEAP, root=copy) == changed(block(GAUDI), "utilization 0.9", "utilization 0.8")


def test_changed_code_is_used(copy: Path) -> None:
    assert succeeds(*CHEAP, root=copy) == block(GAUDI)
    vocabulary = copy / "schema/vocabulary/hardware.yaml"
    vocabulary.write_text(vocabulary.read_text(encoding="utf-8").replace("Gaudi 2", "Gaudi II"), encoding="utf-8")
    assert succeeds(*CHEAP, root=copy) == changed(block(GAUDI), "Gaudi 2\n", "Gaudi II\n")


def test_a_moved_copy_is_read_anew(copy: Path) -> None:
    succeeds(*CHEAP, root=copy)
    shutil.move(copy / "recipes" / GAUDI, copy / "recipes/amd/Renamed")
    assert "# amd/Renamed on" in succeeds("--export-shell", "amd/Renamed", root=copy)


@pytest.mark.parametrize("damage", [b"", b"{}", b"null", b"[1]", b"\xff\0", b"cut"])
def test_a_damaged_entry_is_made_anew(copy: Path, damage: bytes) -> None:
    succeeds(*CHEAP, root=copy)
    [entry] = entries(copy)
    whole = entry.read_bytes()
    entry.write_bytes(whole[: len(whole) // 2] if damage == b"cut" else damage)
    assert succeeds(*CHEAP, root=copy) == block(GAUDI)
    assert entry.read_bytes() == whole


def test_a_changed_byte_of_an_entry_is_seen(copy: Path) -> None:
    succeeds(*CHEAP, root=copy)
    [entry] = entries(copy)
    whole = entry.read_bytes()
    assert b"vllm serve" in whole
    entry.write_bytes(whole.replace(b"vllm serve", b"vllm SERVE"))
    assert succeeds(*CHEAP, root=copy) == block(GAUDI)


def test_a_cache_that_can_not_be_written_is_none(copy: Path) -> None:
    (copy / ".cookbook-cache").write_text("in the way")
    assert succeeds(*CHEAP, root=copy) == block(GAUDI)
    (copy / ".cookbook-cache").unlink()
    (copy / ".cookbook-cache").symlink_to(copy / "nowhere/at/all")
    assert succeeds(*CHEAP, root=copy) == block(GAUDI)


def test_an_entry_is_no_recipe_s_without_problems(copy: Path) -> None:
    """A recipe that was kept and then got a fault is refused, and exported again when the fault is gone."""
    succeeds(*CHEAP, root=copy)
    file = copy / "recipes" / GAUDI / "recipe.yaml"
    good = file.read_bytes()
    break_recipe(copy)
    fails(1, *CHEAP, root=copy)
    file.write_bytes(good)
    assert succeeds(*CHEAP, root=copy) == block(GAUDI)


def test_exports_at_the_same_time(copy: Path) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(run(*CHEAP, root=copy).stdout)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [block(GAUDI)] * 4
    assert len(entries(copy)) == 1


def test_rich_recipe_exports_each_of_its_selections(tmp_path: Path) -> None:
    for identity, text in (("acme/Small", RICH), ("acme/Other", MINIMAL)):
        file = tmp_path / "recipes" / identity / "recipe.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
    file = tmp_path / "recipes/acme/Small/recipe.yaml"
    described = json.loads(succeeds("--export-json", file))["selections"]
    assert [item["selection"] for item in described] == selections(load(file, tmp_path).program)
    assert [item["env"] for item in described if item["selection"]["cache"] == "off"] == [{"DIR": "/models/small"}] * 3


@pytest.mark.parametrize("command", [[], ["--check"], ["--list"], ["--schema"]])
def test_a_package_that_is_missing_is_named(command: list[str]) -> None:
    """Without site-packages, as in an environment that was not set up."""
    run = subprocess.run([sys.executable, "-S", str(ROOT / "build_site.py"), *command], capture_output=True, text=True)
    assert run.returncode == 1 and "run make setup" in run.stderr
    assert "Traceback" not in run.stderr and run.stderr.count("\n") == 1
