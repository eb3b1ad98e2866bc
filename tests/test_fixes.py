"""What each fix changes in behaviour: the function in question is taken out of the file, before and after, and run on the CPU."""

from __future__ import annotations

import ast
import json
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import tiktoken
import torch

from apply_all import main
from fixpack import catalog
from fixtrees import Tree, stand_in, upstream
from support import ROOT

RUNNER = "vllm_gaudi/v1/worker/hpu_model_runner.py"
EXECUTOR = "vllm/v1/executor/multiproc_executor.py"
BATCH = "vllm_gaudi/v1/worker/hpu_input_batch.py"
LOGPROBS = "vllm/v1/engine/logprobs.py"
DETOKENIZER = "vllm/tokenizers/detokenizer_utils.py"
SAMPLER = "vllm/v1/sample/ops/topk_topp_sampler.py"
TREES = ["upstream"] if os.environ.get("UPSTREAM_VLLM") else ["v0.26.0", "v0.30.0"]


class Both:
    """A tree before and after the fixes."""

    def __init__(self, folder: Path, kind: str) -> None:
        made = upstream(folder / "tree") if kind == "upstream" else stand_in(folder / "tree", kind)
        assert made
        self.tree: Tree = made
        files = sorted({name for fix in catalog.fixes(catalog.profile(made.profile).fixes) for name in fix.edits})
        self.before = {name: made.read(name) for name in files}
        assert main(["--profile", made.profile, "--site-packages", str(made.root), "--json"]) == 0
        self.after = {name: made.read(name) for name in files}


@pytest.fixture(scope="module", params=TREES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(tmp_path_factory.mktemp("fixes"), request.param)


def functions(text: str, *names: str, **known: Any) -> SimpleNamespace:
    """Functions and methods of a file by name, run with nothing around them but ``torch`` and what is given."""
    wanted = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and (node.name in names or node.name.endswith("_or_nothing"))
    ]
    future = ast.parse("from __future__ import annotations").body
    space: dict[str, Any] = {"torch": torch, **known}
    exec(compile(ast.Module([*future, *wanted], []), "the function", "exec"), space)
    space.update(known)
    return SimpleNamespace(**{name: space[name] for name in names})


# --- prompt-order ----------------------------------------------------------------------------------------------------


class Batch:
    """The rows of a batch: request, tokens computed, tokens of the prompt."""

    def __init__(self, *rows: tuple[str, int, int]) -> None:
        self.rows = list(rows)

    num_reqs = property(lambda self: len(self.rows))
    req_ids = property(lambda self: [row[0] for row in self.rows])
    num_computed_tokens_cpu = property(lambda self: [row[1] for row in self.rows])
    num_prompt_tokens = property(lambda self: [row[2] for row in self.rows])

    def swap_states(self, one: int, other: int) -> None:
        self.rows[one], self.rows[other] = self.rows[other], self.rows[one]


class Reached(Exception):  # noqa: N818
    """The batch is about to be split."""


def split(text: str, batch: Batch, scheduled: list[str]) -> tuple[list[str], bool]:
    """The rows as they are split into prompts and decodes, and whether the sampling tensors are made anew."""
    code = functions(
        text, "sample_tokens", "_ensure_decodes_first", "_is_prompt", ensure_multi_token_decodes_last=lambda *_: None
    )
    runner = SimpleNamespace(
        input_batch=batch,
        batch_changed=False,
        warmup_mode=False,
        vllm_config=SimpleNamespace(speculative_config=None),
        is_decoder_only=lambda _: False,
        scheduler_output=SimpleNamespace(num_scheduled_tokens=dict.fromkeys(scheduled, 1), scheduled_spec_decode_tokens={}),
    )

    def reached(*_: Any) -> None:
        raise Reached

    runner._get_prompts_and_decodes = reached
    for name in ("_ensure_decodes_first", "_is_prompt"):
        setattr(runner, name, types.MethodType(getattr(code, name), runner))
    with pytest.raises(Reached) as caught:
        code.sample_tokens(runner, None)
    frames = [entry.frame.f_locals for entry in caught.traceback if "batch_changed" in entry.frame.f_locals]
    return batch.req_ids, frames[-1]["batch_changed"]


def test_prompts_run_in_the_scheduler_s_order(both: Both) -> None:
    def rows() -> Batch:
        return Batch(("A", 0, 9), ("D1", 9, 9), ("B", 0, 9), ("D2", 9, 9))

    scheduled = ["D1", "D2", "A", "B"]
    assert split(both.before[RUNNER], rows(), scheduled) == (["D2", "D1", "B", "A"], False), "the fault"
    assert split(both.after[RUNNER], rows(), scheduled) == (["D2", "D1", "A", "B"], True)


@pytest.mark.parametrize("scheduled", ["ABC", "CBA", "BAC", "BCA"])
def test_any_order_of_three_prompts(both: Both, scheduled: str) -> None:
    rows, changed = split(both.after[RUNNER], Batch(("A", 0, 9), ("B", 3, 9), ("C", 8, 9)), list(scheduled))
    assert "".join(rows) == scheduled
    assert changed == (scheduled != "ABC"), "tensors are made anew only if a row moved"


def test_decodes_stay_where_they_are(both: Both) -> None:
    rows = Batch(("D1", 9, 9), ("D2", 9, 9), ("A", 0, 9))
    assert split(both.after[RUNNER], rows, ["A", "D2", "D1"]) == (["D1", "D2", "A"], False)


class States:
    """The states of four rows: arrays of the row's number, but for what is given."""

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)

    def __getattr__(self, name: str) -> Any:
        setattr(self, name, numpy.arange(4))
        return getattr(self, name)


def swapped(text: str, mask: Any) -> States:
    code = functions(text, "swap_states", swap_dict_values=lambda *_: None)
    states = States(
        _req_ids=list("ABCD"),
        req_id_to_index={name: row for row, name in enumerate("ABCD")},
        req_output_token_ids=[[], [], [], []],
        token_ids_cpu=numpy.zeros((4, 2)),
        is_pooling_model=False,
        allowed_token_ids_mask_cpu_tensor=mask,
        block_table=SimpleNamespace(swap_row=lambda *_: None),
    )
    code.swap_states(states, 1, 3)
    return states


def test_a_row_that_moves_takes_its_allowed_tokens_along(both: Both) -> None:
    before, after = (swapped(text[BATCH], torch.eye(4, dtype=torch.bool)) for text in (both.before, both.after))
    assert before.allowed_token_ids_mask_cpu_tensor.int().argmax(1).tolist() == [0, 3, 2, 3], "the fault: a row is lost"
    assert after.allowed_token_ids_mask_cpu_tensor.int().argmax(1).tolist() == [0, 3, 2, 1]
    assert after.top_k_cpu.tolist() == before.top_k_cpu.tolist() == [0, 3, 2, 1]
    assert swapped(both.after[BATCH], None).top_k_cpu.tolist() == [0, 3, 2, 1], "where nobody restricts the tokens"


# --- gather-logprobs-int32 -------------------------------------------------------------------------------------------


class Device:
    """A device without int64: joining long tensors gives what two 32-bit halves read as one list would."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def cat(tensors: Any, dim: int) -> Any:
        joined = torch.cat(tensors, dim=dim)
        if joined.dtype == torch.int64:
            return joined.view(torch.int32)[..., : joined.shape[-1]].to(torch.int64)
        return joined


def gathered(both: Both, text: str, name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    logprobs = torch.log_softmax(torch.arange(40.0).view(2, 20) % 7, -1)
    ids = torch.tensor([3, 19])
    result = SimpleNamespace
    outputs, sampler = types.ModuleType("vllm.v1.outputs"), types.ModuleType("vllm.v1.sample.sampler")
    outputs.LogprobsTensors = lambda ids, logprobs, ranks: result(ids=ids, logprobs=logprobs, ranks=ranks)  # type: ignore[attr-defined]
    sampler.batched_count_greater_than = lambda x, own: (x >= own).sum(-1)  # type: ignore[attr-defined]
    for module in ("vllm", "vllm.v1", "vllm.v1.sample"):
        monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    monkeypatch.setitem(sys.modules, "vllm.v1.outputs", outputs)
    monkeypatch.setitem(sys.modules, "vllm.v1.sample.sampler", sampler)
    sys.modules["vllm.v1.sample"].sampler = sampler  # type: ignore[attr-defined]
    function = getattr(functions(text, name, torch=Device(), LogprobsTensors=outputs.LogprobsTensors), name)
    return function(*([None] if name.startswith("_gather") else []), logprobs, 3, ids)


@pytest.mark.parametrize(
    ("file", "name"), [("vllm_gaudi/patches.py", "_hpu_gather_logprobs"), (RUNNER, "_gather_prompt_logprobs_hpu")]
)
def test_ids_survive_a_device_without_int64(both: Both, file: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (gathered(both, text[file], name, monkeypatch) for text in (both.before, both.after))
    logprobs = torch.log_softmax(torch.arange(40.0).view(2, 20) % 7, -1)
    right = torch.cat((torch.tensor([[3], [19]]), torch.topk(logprobs, 3, dim=-1)[1]), dim=1)
    assert not torch.equal(before.ids.to(torch.int64), right), "the fault, as the emulated device shows it"
    assert torch.equal(after.ids.to(torch.int64), right)
    assert after.ids.dtype == torch.int32
    assert torch.equal(after.logprobs, before.logprobs)
    assert torch.equal(after.ranks, before.ranks)


# --- logprobs-decode-guard -------------------------------------------------------------------------------------------


class Tokenizer:
    """A tiny tiktoken encoding, behind the methods that vLLM asks a tokenizer for."""

    encoding = tiktoken.Encoding(
        "tiny", pat_str=r".", mergeable_ranks={**{bytes([byte]): byte for byte in range(256)}, b"ab": 256}, special_tokens={}
    )

    def __init__(self, marker: str | None, errors: str = "strict") -> None:
        self.marker = marker
        self.errors = errors

    def decode(self, ids: list[int]) -> str:
        return self.encoding.decode(ids, errors=self.errors)

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self.encoding.decode_single_token_bytes(one).decode() for one in ids]


def tokens(text: str, marker: str | None, ids: list[int]) -> list[str]:
    code = functions(
        text,
        "convert_ids_list_to_tokens",
        "_restore_leading_spaces",
        _get_leading_space_marker=lambda tokenizer: tokenizer.marker,
    )
    found: list[str] = code.convert_ids_list_to_tokens(Tokenizer(marker), ids)
    return found


@pytest.mark.parametrize("marker", [None, "_"], ids=["first loop", "second loop"])
@pytest.mark.parametrize("wrong", [257, 10**12, -1, 0xFF], ids=["out of range", "far out", "negative", "no text"])
def test_an_id_that_is_no_text_is_empty(both: Both, marker: str | None, wrong: int) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - whichever the tokenizer raises
        tokens(both.before[DETOKENIZER], marker, [97, wrong, 256])
    assert tokens(both.after[DETOKENIZER], marker, [97, wrong, 256]) == ["a", "", "ab"]


@pytest.mark.parametrize("marker", [None, "_"])
def test_good_ids_are_as_before(both: Both, marker: str | None) -> None:
    ids = [*range(32, 127), 256]
    assert tokens(both.after[DETOKENIZER], marker, ids) == tokens(both.before[DETOKENIZER], marker, ids)
    assert tokens(both.after[DETOKENIZER], marker, []) == []


class Pieces:
    """A tokenizer whose vocabulary is a list of pieces, which a negative id indexes from its end."""

    marker = "_"
    vocabulary = ("a", "__broken", "_", "__")

    def decode(self, ids: list[int]) -> str:
        if ids[0] == 1:
            raise ValueError("no text")
        return self.vocabulary[ids[0]].replace("_", " ").lstrip(" ")

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self.vocabulary[one] for one in ids]


@pytest.mark.parametrize("wrong", [-1, 1, 4], ids=["negative", "no text", "out of range"])
def test_no_piece_of_a_wrong_id_is_restored(both: Both, wrong: int) -> None:
    """The spaces at the beginning of a piece come back only if the piece is of an id that has a text."""
    code = functions(
        both.after[DETOKENIZER],
        "convert_ids_list_to_tokens",
        "_restore_leading_spaces",
        _get_leading_space_marker=lambda tokenizer: tokenizer.marker,
    )
    assert code.convert_ids_list_to_tokens(Pieces(), [0, wrong, 2, 3]) == ["a", "", " ", "  "]


def corrected(text: str, context: list[int], token: int) -> str:
    """The second half of a character, with what came before it; the first byte of a ``ä`` is 195, the second 164."""
    code = functions(text, "_correct_decoded_token")
    found: str = code._correct_decoded_token(SimpleNamespace(tokenizer=Tokenizer(None, "replace")), token, context)
    return found


@pytest.mark.parametrize("wrong", [257, 10**12, -1], ids=["out of range", "far out", "negative"])
def test_a_split_character_after_an_id_that_is_no_text(both: Both, wrong: int) -> None:
    for context in ([wrong], [97, wrong], [wrong, 97]):
        with pytest.raises(Exception):  # noqa: B017, PT011 - whichever the tokenizer raises
            corrected(both.before[LOGPROBS], context, 195)
        assert corrected(both.after[LOGPROBS], context, 195) == "", "half a character"
    assert corrected(both.after[LOGPROBS], [wrong, 195], 164) == "ä"
    assert corrected(both.after[LOGPROBS], [195, wrong], 164) == "", "the halves are apart"


@pytest.mark.parametrize(
    ("context", "token", "found"),
    [([97, 195], 164, "ä"), ([195], 164, "ä"), ([97], 195, ""), ([], 164, ""), ([0xE2, 0x82], 0xAC, "€")],
)
def test_split_characters_are_as_before(both: Both, context: list[int], token: int, found: str) -> None:
    assert corrected(both.before[LOGPROBS], context, token) == corrected(both.after[LOGPROBS], context, token) == found


# --- seeded-sampling -------------------------------------------------------------------------------------------------


def sampled(text: str, padding: int, steps: int = 4) -> list[int]:
    """The tokens of a seeded request, in a batch with one unseeded row and so many rows of padding, which repeat the first."""
    code = functions(text, "random_sample", "empty_exponential_noise_like", "sample_with_exponential_noise")
    generator = torch.Generator().manual_seed(7)
    generators = {0: generator, **{2 + row: generator for row in range(padding)}}
    torch.manual_seed(padding)
    return [int(code.random_sample(torch.full((2 + padding, 1000), 0.001), dict(generators))[0]) for _ in range(steps)]


def test_a_seed_gives_the_same_tokens_at_every_padding(both: Both) -> None:
    before = [sampled(both.before[SAMPLER], padding) for padding in range(4)]
    after = [sampled(both.after[SAMPLER], padding) for padding in range(4)]
    assert before[0] != before[1], "the fault"
    assert after == [before[0]] * 4, "and without padding they are what they were"


def test_rows_of_their_own_seeds_are_as_before(both: Both) -> None:
    def drawn(text: str) -> list[int]:
        code = functions(text, "random_sample", "empty_exponential_noise_like", "sample_with_exponential_noise")
        generators = {row: torch.Generator().manual_seed(row) for row in range(5)}
        found: list[int] = code.random_sample(torch.full((5, 1000), 0.001), generators, True).tolist()
        return found

    assert drawn(both.after[SAMPLER]) == drawn(both.before[SAMPLER])


def test_the_noise_is_drawn_where_the_generator_is(both: Both) -> None:
    """A tensor of a device on which nothing can be drawn: only its copy arrives there."""
    code = functions(
        both.after[SAMPLER],
        "random_sample",
        "empty_exponential_noise_like",
        sample_with_exponential_noise=lambda _, q: q.device.type,
    )
    generator = torch.Generator().manual_seed(7)
    assert code.random_sample(torch.empty(1, 8, device="meta"), {0: generator}) == "meta"
    expected = torch.Generator().manual_seed(7)
    torch.empty(8).exponential_(generator=expected)
    assert torch.equal(generator.get_state(), expected.get_state())


def test_seeds_are_kept_on_the_cpu(both: Both) -> None:
    def made(text: str) -> Any:
        [call] = [
            node
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.Generator"
        ]
        return eval(ast.unparse(call), {"torch": torch, "self": SimpleNamespace(device="hpu")})

    with pytest.raises(RuntimeError):
        made(both.before[RUNNER])
    assert made(both.after[RUNNER]).device.type == "cpu"


def test_the_sampling_of_the_cpu_is_left_alone(both: Both) -> None:
    def forward_cpu(text: str) -> str:
        return next(
            ast.unparse(node)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef) and node.name == "forward_cpu"
        )

    assert forward_cpu(both.after[SAMPLER]) == forward_cpu(both.before[SAMPLER])


# --- rank-exception-fatal --------------------------------------------------------------------------------------------


class Stopped(Exception):  # noqa: N818
    """The loop asked for another call."""


def worked(text: str, rank: int, output_rank: int | None, method: str = "fail") -> tuple[str, list[str]]:
    """How the busy loop of a rank ended after one call, and what it replied."""
    replies: list[str] = []
    calls: Iterator[Any] = iter([(method, (), {}, output_rank)])

    def dequeue(indefinite: bool) -> Any:
        try:
            return next(calls)
        except StopIteration:
            raise Stopped from None

    def fail() -> None:
        raise ValueError("the device is gone")

    names = [name for name in ("worker_busy_loop", "_execute_worker_rpc") if f"def {name}(" in text]
    silent: Callable[..., None] = lambda *_: None  # noqa: E731
    import traceback

    code = functions(text, *names, logger=SimpleNamespace(exception=silent), traceback=traceback, cloudpickle=None, partial=None)
    worker = SimpleNamespace(
        rank=rank,
        worker=SimpleNamespace(fail=fail, answer=lambda: "fine"),
        rpc_broadcast_mq=SimpleNamespace(dequeue=dequeue),
        handle_output=lambda output: replies.append(str(output)),
    )
    for name in names[1:]:
        setattr(worker, name, types.MethodType(getattr(code, name), worker))
    try:
        code.worker_busy_loop(worker)
    except (Stopped, ValueError) as error:
        return type(error).__name__, replies
    raise AssertionError("the loop ended")


def test_a_rank_that_nobody_waits_for_ends_with_its_exception(both: Both) -> None:
    assert worked(both.before[EXECUTOR], rank=1, output_rank=0) == ("Stopped", []), "the fault: it goes on"
    assert worked(both.after[EXECUTOR], rank=1, output_rank=0) == ("ValueError", [])


@pytest.mark.parametrize("output_rank", [1, None])
def test_a_rank_that_is_waited_for_replies(both: Both, output_rank: int | None) -> None:
    for text in (both.before, both.after):
        assert worked(text[EXECUTOR], rank=1, output_rank=output_rank) == ("Stopped", ["the device is gone"])
        assert worked(text[EXECUTOR], rank=1, output_rank=output_rank, method="answer") == ("Stopped", ["fine"])
    assert worked(both.after[EXECUTOR], rank=1, output_rank=0, method="answer") == ("Stopped", [])


# --- the pack's own files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", catalog.profile("v0.30.0").fixes)
def test_what_a_fix_says_of_itself(name: str) -> None:
    about = json.loads((ROOT / "fixes" / name / "fix.json").read_text("utf-8"))
    [fix] = catalog.fixes([name])
    assert about["name"] == name
    assert sorted(about["files"]) == sorted(fix.edits)
    assert all(about[field].endswith(".") for field in ("symptom", "cause", "change", "shown"))


def test_both_profiles_are_whole() -> None:
    assert catalog.profiles() == ["v0.26.0", "v0.30.0"]
    folders = {path.parent.name for path in (ROOT / "fixes").glob("*/fix.json")}
    for name in catalog.profiles():
        profile = catalog.profile(name)
        assert profile.name == name
        assert {*profile.fixes, *profile.opt_in} == folders
