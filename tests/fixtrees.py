"""Installed packages for the tests of the fix pack: stand-ins of the same shape, or copies of real trees that are given.

``make test-upstream VLLM=DIR GAUDI=DIR`` names folders with ``vllm`` and ``vllm_gaudi``; then each test of a fix runs on those.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from apply_all import main

RUNNER = '''\
"""A stand-in."""
import torch


class HPUModelRunner:
    def _update_states(self, scheduler_output):
        for new in scheduler_output.scheduled_new_reqs:
            if new.seed is not None:
                generator = torch.Generator(device=self.device)
                generator.manual_seed(new.seed)
            else:
                generator = None
            self.requests[new.req_id] = generator

    def _is_prompt(self, row, scheduler_output):
        return self.input_batch.num_computed_tokens_cpu[row] < self.input_batch.num_prompt_tokens[row]

    def _gather_prompt_logprobs_hpu(self, logprobs, num_prompt_logprobs, token_ids):
        best, best_ids = torch.topk(logprobs, num_prompt_logprobs, dim=-1)
        token_ids = token_ids.unsqueeze(-1)
        own = logprobs.gather(-1, token_ids)
        ranks = (logprobs >= own).sum(-1)
        ids = torch.cat((token_ids, best_ids), dim=1).to(torch.int32)
        return LogprobsTensors(ids, torch.cat((own, best), dim=1), ranks)

    def _ensure_decodes_first(self, scheduler_output):
        count = self.input_batch.num_reqs
        while True:
            prompts = [row for row in range(count) if self._is_prompt(row, scheduler_output)]
            decodes = [row for row in range(count) if row not in prompts]
            if not prompts or not decodes or prompts[0] > decodes[-1]:
                return
            self.input_batch.swap_states(prompts[0], decodes[-1])

    def sample_tokens(self, grammar_output):
        scheduler_output = self.scheduler_output
        batch_changed = self.batch_changed
        self._ensure_decodes_first(scheduler_output)
        pd_info = self._get_prompts_and_decodes(scheduler_output)
        return self._run(pd_info, batch_changed)
'''

PATCHES = '''\
"""A stand-in."""
import torch


def _hpu_gather_logprobs(logprobs, num_logprobs, token_ids):
    from vllm.v1.outputs import LogprobsTensors
    import vllm.v1.sample.sampler as sampler

    best, best_ids = torch.topk(logprobs, num_logprobs, dim=-1)
    token_ids = token_ids.unsqueeze(-1)
    own = logprobs.gather(-1, token_ids)
    ranks = sampler.batched_count_greater_than(logprobs, own)
    ids = torch.cat((token_ids, best_ids), dim=1)
    logprobs = torch.cat((own, best), dim=1)
    ids = ids.to(torch.int32)
    return LogprobsTensors(ids, logprobs, ranks)
'''

DETOKENIZER = '''\
"""A stand-in."""


def _get_leading_space_marker(tokenizer):
    return getattr(tokenizer, "marker", None)


def _restore_leading_spaces(raw, text, marker):
    spaces = len(raw) - len(raw.lstrip(marker))
    return " " * (spaces - (len(text) - len(text.lstrip(" ")))) + text


def convert_ids_list_to_tokens(tokenizer, token_ids):
    if not token_ids:
        return []
    marker = _get_leading_space_marker(tokenizer)
    if marker is None:
        return [tokenizer.decode([one]) or "" for one in token_ids]
    pieces = tokenizer.convert_ids_to_tokens(token_ids)
    return [_restore_leading_spaces(raw, tokenizer.decode([one]) or "", marker) for one, raw in zip(token_ids, pieces)]
'''

LOGPROBS = '''\
"""A stand-in."""


class LogprobsProcessor:
    def _correct_decoded_token(self, token_id, context_token_ids):
        for count in range(1, len(context_token_ids) + 1):
            context = context_token_ids[-count:]
            whole = self.tokenizer.decode(context + [token_id])
            if not whole.endswith("\\ufffd"):
                while context and self.tokenizer.decode([context[-1]]).endswith("\\ufffd"):
                    context = context[:-1]
                return whole[len(self.tokenizer.decode(context) if context else "") :]
        return ""
'''

BATCH = '''\
"""A stand-in."""


class InputBatch:
    def swap_states(self, i1, i2):
        self.top_k_cpu[i1], self.top_k_cpu[i2] = self.top_k_cpu[i2], self.top_k_cpu[i1]
        if self.allowed_token_ids_mask_cpu_tensor is not None:
            self.allowed_token_ids_mask_cpu_tensor[i1], self.allowed_token_ids_mask_cpu_tensor[i2] = \\
                self.allowed_token_ids_mask_cpu_tensor[i2], self.allowed_token_ids_mask_cpu_tensor[i1]
'''

SAMPLER = '''\
"""A stand-in."""
import torch


class Sampler:
    def forward_cpu(self, probs, generators):
        q = torch.empty_like(probs)
        q.exponential_()
        for i, generator in generators.items():
            q[i].exponential_(generator=generator)
        return sample_with_exponential_noise(probs, q)


def empty_exponential_noise_like(probs, use_fp64_gumbel=False):
    return torch.empty(probs.shape, dtype=torch.float64 if use_fp64_gumbel else probs.dtype, device=probs.device)


def sample_with_exponential_noise(probs, q):
    return probs.div(q).argmax(dim=-1).view(-1)


def random_sample(probs, generators, use_fp64_gumbel=False):
    q = empty_exponential_noise_like(probs, use_fp64_gumbel)
    if len(generators) != probs.shape[0]:
        q.exponential_()
    if generators:
        for i, generator in generators.items():
            q[i].exponential_(generator=generator)
    return sample_with_exponential_noise(probs, q)
'''

_HANDLER = """\
try:
    output = getattr(self.worker, method)(*args, **kwargs)
    if output_rank is None or self.rank == output_rank:
        self.handle_output(output)
except Exception as error:
    logger.exception("It failed.")
    if output_rank is None or self.rank == output_rank:
        self.handle_output(error)
"""


def _indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}" for line in text.splitlines(keepends=True))


LOOPING = f'''\
"""A stand-in, of the shape of 0.26."""


class WorkerProc:
    def worker_busy_loop(self):
        while True:
            method, args, kwargs, output_rank = self.rpc_broadcast_mq.dequeue(indefinite=True)
{_indented(_HANDLER, 12)}'''

CALLED = f'''\
"""A stand-in, of the shape of 0.30."""


class WorkerProc:
    def worker_busy_loop(self):
        while True:
            self._execute_worker_rpc(self.rpc_broadcast_mq.dequeue(indefinite=True))

    def _execute_worker_rpc(self, rpc_request):
        method, args, kwargs, output_rank = rpc_request
{_indented(_HANDLER, 8)}'''

FILES = {
    "vllm/__init__.py": "",
    "vllm/tokenizers/detokenizer_utils.py": DETOKENIZER,
    "vllm/v1/engine/logprobs.py": LOGPROBS,
    "vllm/v1/sample/ops/topk_topp_sampler.py": SAMPLER,
    "vllm_gaudi/__init__.py": "",
    "vllm_gaudi/patches.py": PATCHES,
    "vllm_gaudi/v1/worker/hpu_input_batch.py": BATCH,
    "vllm_gaudi/v1/worker/hpu_model_runner.py": RUNNER,
}
EXECUTOR = "vllm/v1/executor/multiproc_executor.py"
EXECUTORS = {"v0.26.0": LOOPING, "v0.30.0": CALLED}

VERSIONS = {
    "v0.26.0": {"vllm": ("0.26.0", "gffd46bfab"), "vllm_gaudi": ("0.26.0+gb059f9c95", None)},
    "v0.30.0": {"vllm": ("0.30.0", "gced6857af"), "vllm_gaudi": ("0.30.0.dev3+g058f107", None)},
}


@dataclass(frozen=True)
class Tree:
    """A folder like ``site-packages``."""

    root: Path
    profile: str

    def read(self, name: str) -> str:
        """The text of one of its files."""
        return (self.root / name).read_text("utf-8")

    def contents(self) -> dict[str, bytes]:
        """Every source file by its name, and whatever else there is but the pack's own folder and bytecode."""
        files = sorted(path for path in self.root.rglob("*") if path.is_file())
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in files
            if path.relative_to(self.root).parts[0] != ".gaudi-cookbook" and "__pycache__" not in path.parts
        }


def stand_in(root: Path, profile: str = "v0.30.0") -> Tree:
    """Packages of the shape of an image's, and of its versions."""
    for name, text in {**FILES, EXECUTOR: EXECUTORS[profile]}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    for package, (version, commit) in VERSIONS[profile].items():
        write_version(root / package, version, commit)
    return Tree(root, profile)


def write_version(package: Path, version: str | None, commit: str | None) -> None:
    """Write ``_version.py`` as setuptools-scm does."""
    (package / "_version.py").write_text(
        f"__version__ = version = {version!r}\n__commit_id__ = commit_id = {commit!r}\n", encoding="utf-8"
    )


def upstream(root: Path) -> Tree | None:
    """A copy of the real trees that the environment names, with the versions that the profile asks for; None if it names none."""
    vllm, gaudi = os.environ.get("UPSTREAM_VLLM"), os.environ.get("UPSTREAM_GAUDI")
    if not vllm or not gaudi:
        return None
    for package, where in (("vllm", vllm), ("vllm_gaudi", gaudi)):
        if not (Path(where) / package / "__init__.py").is_file():
            raise FileNotFoundError(f"{where} holds no {package}/__init__.py")
        shutil.copytree(Path(where) / package, root / package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    profile = "v0.30.0" if '"0.30' in (root / "vllm/_version.py").read_text("utf-8").replace("'", '"') else "v0.26.0"
    for package, (version, commit) in VERSIONS[profile].items():
        write_version(root / package, version, commit)
    return Tree(root, profile)


def run(tree: Tree, *arguments: str) -> int:
    """Run ``apply_all.py`` on a tree, in this process."""
    return main(["--profile", tree.profile, "--site-packages", str(tree.root), *arguments])


def fails(capsys: pytest.CaptureFixture[str], code: int, tree: Tree, *arguments: str) -> str:
    """A run that fails, writes nothing and says why on standard error."""
    before = everything(tree)
    capsys.readouterr()
    assert run(tree, *arguments) == code
    out, said = capsys.readouterr()
    assert out == "" and said.startswith("apply_all.py: ")
    assert everything(tree) == before
    return said


def everything(tree: Tree) -> dict[str, bytes]:
    """Every file of a tree, the pack's own too."""
    return {str(path.relative_to(tree.root)): path.read_bytes() for path in sorted(tree.root.rglob("*")) if path.is_file()}
