"""Recipes with one fault each: what is changed in a good one, and the problem that must be reported."""

# ruff: noqa: E501  (a table: one fault a line)

from __future__ import annotations

from dataclasses import dataclass, field

from support import MINIMAL, RICH


@dataclass(frozen=True)
class Wrong:
    """One fault: ``old`` becomes ``new`` in ``text``, and the one problem is at ``place`` and says ``message``."""

    name: str
    old: str
    new: str
    place: str
    message: str
    text: str = RICH
    files: dict[str, str] = field(default_factory=dict)


def serving(name: str, old: str, new: str, place: str, message: str) -> Wrong:
    """A fault of the minimal recipe."""
    return Wrong(name, old, new, place, message, MINIMAL)


TP = '{arg: --tensor-parallel-size, value: "2"}'
SERVE = "serve: [vllm, serve, {var: DIR}]"
ARM = '{hardware: two, variant: plain, cache: "off"}'
PORT = '{arg: --port, value: "8000"}'
MEASURED = "status: measured\n    measured_on: 2026-08-21\n    commit: 0123abc\n    command: run it"
PROFILE = '{"name": "v1", "fixes": ["frist-fix", "other"]}'
AFTER_ALL = '  - {arg: --port, value: "8000"}\nfixes:'
SGLANG = """\
summary: A small model.
engine: sglang
model:
  base: acme/Small
  total_parameters_b: 7
  architecture: dense transformer
  kind: dense
  context_tokens: 4096
  inputs: [text]
  licence: {name: MIT}
axes:
  - name: hardware
    kind: hardware
    title: Hardware
    options:
      - {name: two, hardware: H200, cards: 2}
  - name: variant
    kind: variant
    title: Variant
    options:
      - {name: plain, precision: bf16, model: acme/Small}
launch:
  - {env: A, value: x}
  - serve: [sglang, serve]
  - {arg: --model-path, value: acme/Small}
"""

FORM = [
    serving("unknown key", "engine: vllm-gaudi", "engine: vllm-gaudi\nenginee: x", "enginee", "unknown key, did you mean engine?"),
    serving("unknown key in an option", "cards: 2}", "cards: 2, node: 1}", "axes[0].options[0].node", "did you mean nodes?"),
    serving("unknown key in an axis", "kind: variant", "kind: variant\n    defalt: plain", "axes[1].defalt", "did you mean default?"),
    serving("misspelt key", "launch:", "relatd: []\nlaunch:", "relatd", "did you mean related?"),
    serving("unknown engine", "vllm-gaudi", "vllm-gaudy", "engine", "unknown engine 'vllm-gaudy', did you mean vllm-gaudi?"),
    serving("unknown hardware", "hardware: gaudi2", "hardware: gaudi22", "axes[0].options[0].hardware", "did you mean gaudi2?"),
    serving("unknown precision", "bf16", "bf17", "axes[1].options[0].precision", "unknown precision 'bf17', did you mean bf16"),
    serving("unknown kind of axis", "kind: variant", "kind: flavour", "axes[1]", "kind 'flavour' is not one of hardware, image, variant"),
    serving("axis without a kind", "    kind: variant\n", "", "axes[1]", "kind is missing"),
    serving("unknown kind of model", "kind: dense", "kind: sparse", "model.kind", "'sparse' is not one of moe, dense"),
    serving("unknown input", "[text]", "[txet]", "model.inputs[0]", "did you mean text?"),
    serving("no title", "    title: Hardware\n", "", "axes[0]", "title is missing"),
    serving("empty title", "title: Hardware", 'title: " "', "axes[0].title", "must not be empty"),
    serving("no model", "  base: acme/Small\n", "", "model", "base is missing"),
    serving("no licence", "  licence: {name: MIT}\n", "", "model", "licence is missing"),
    serving("no launch", "launch:\n  - serve: [vllm, serve, acme/Small]", "notes: []", "", "launch is missing"),
    serving("empty launch", "launch:\n  - serve: [vllm, serve, acme/Small]", "launch: []", "launch", "must not be empty"),
    serving("no options", "[vllm, serve, acme/Small]", "[]", "launch[0].serve", "must not be empty"),
    serving("text for a number", "cards: 2", 'cards: "2"', "axes[0].options[0].cards", "must be a whole number, not the text '2'"),
    serving("words for a number", "_b: 7", "_b: seven", "model.total_parameters_b", "must be a number, not the text 'seven'"),
    serving("half a card", "cards: 2", "cards: 7.5", "axes[0].options[0].cards", "must be a whole number, not the number 7.5"),
    serving("no cards", "cards: 2", "cards: 0", "axes[0].options[0].cards", "must be at least 1, not 0"),
    serving("negative size", "weights_gb: 14", "weights_gb: -14", "axes[1].options[0].weights_gb", "must be more than 0, not -14"),
    serving("true for a number", "_tokens: 4096", "_tokens: true", "model.context_tokens", "must be a whole number, not true"),
    serving("mapping for text", "name: MIT", "name: {a: b}", "model.licence.name", "must be text, not a mapping"),
    serving("text for a list", "[text]", "text", "model.inputs", "must be a list, not the text 'text'"),
    serving("text for a mapping", "{name: MIT}", "MIT", "model.licence", "must be a mapping of keys to values, not the text 'MIT'"),
    serving("words in one text", "[vllm, serve, acme/Small]", "vllm serve", "launch[0].serve", "must be a list, not the text"),
    serving("nothing for a text", "summary: A small model on two cards.", "summary:", "summary", "must be text, not nothing"),
    serving("no owner", "base: acme/Small", "base: Small", "model.base", "'Small' is not an id of the form owner/name"),
    serving("name with a space", "name: two", "name: two cards", "axes[0].options[0].name", "is not a name of letters, digits"),
    Wrong("null env", "value: /models/small", "value: null", "launch[0].value", "must be text, not nothing"),
    Wrong("env without a value", ", value: /models/small", "", "launch[0]", "value is missing"),
    Wrong("number for an env", "value: /models/small", "value: 1", "launch[0].value", "not the number 1: write it in quotes"),
    Wrong("number for a flag's value", 'value: "2"', "value: 2", "launch[5].value", "not the number 2: write it in quotes"),
    Wrong("true for a flag's value", 'value: "2"', "value: true", "launch[5].value", "must be text, not true"),
    Wrong("flag and value in one", "arg: --port,", "arg: --port 8000,", "launch[9].arg", "is not a flag such as --port"),
    Wrong("flag without dashes", "arg: --port,", "arg: port,", "launch[9].arg", "'port' is not a flag such as --port"),
    Wrong("two things in one item", "{env: DIR,", "{env: DIR, arg: --a,", "launch[0]", "exactly one of env, comment, run, serve, arg"),
    Wrong("nothing in an item", "{arg: --enable-auto-tool-choice}", "{}", "launch[7]", "exactly one of env, comment, run"),
    Wrong("variable with a dash", "env: CACHE", "env: CA-CHE", "launch[1].env", "'CA-CHE' is not the name of a variable"),
    Wrong("comment of two lines", "Prepare the image.", '"a\\nb"', "launch[2].comment", "is not text of one line"),
    Wrong("unknown status", "status: reported", "status: verified", "evidence[0].status", "unknown status 'verified'"),
    Wrong("no conditions", "    conditions: Two cards\n", "", "evidence[0]", "conditions is missing"),
    Wrong("no date at all", "status: reported", "status: reported\n    measured_on: soon", "evidence[0].measured_on", "a day as"),
    Wrong("month 13", "status: reported", "status: reported\n    measured_on: 2026-13", "evidence[0].measured_on", "'2026-13' is not a day as"),
    Wrong("text for a figure", "values: {base: 1.5}", "values: {base: fast}", "measurements[0].values.base", "must be a number, not the text"),
    Wrong("unknown derivation", "compute: ratio", "compute: rati", "performance[0].derived[0].compute", "did you mean ratio?"),
    Wrong("http link", "https://example.org", "http://example.org", "links[0].url", "is not an https:// address"),
    Wrong("link with a script", '"https://example.org/acme/Small"', '"javascript:alert(1)"', "links[0].url", "is not an https:// address"),
    Wrong("no results", "{passed: 11, of: 12}\n      old: {value: {low: 1, high: 2}}", "{}", "checks[0].results.base", "says nothing"),
]  # fmt: skip
"""Faults of form."""

CHOICES = [
    Wrong("when without because", ", because: Run on four cards only.", "", "axes[1].options[1].when", "needs a because"),
    Wrong("because without when", "title: Prefix cache", "title: Prefix cache\n    because: So.", "axes[2].because", "there is none"),
    Wrong("unknown axis", "when: {hardware: four}", "when: {hardwear: four}", "axes[1].options[1].when.hardwear", "did you mean hardware?"),
    Wrong("unknown option", "when: {hardware: four}", "when: {hardware: fuor}", "axes[1].options[1].when.hardware", "did you mean four?"),
    Wrong("later axis", "when: {hardware: four}", 'when: {cache: "on"}', "axes[1].options[1].when.cache", "no axis 'cache' above"),
    Wrong("own axis", "when: {hardware: four}", "when: {variant: plain}", "axes[1].options[1].when.variant", "no axis 'variant' above"),
    Wrong("empty condition", "when: {hardware: four}", "when: {hardware: []}", "axes[1].options[1].when.hardware", "must not be empty"),
    Wrong("unknown default", 'default: "off"', 'default: "of"', "axes[2].default", "no option 'of', did you mean off?"),
    Wrong("unknown default in a list", 'default: "off"', 'default: [{option: "no"}]', "axes[2].default[0].option", "no option 'no'"),
    Wrong("default by an unknown axis", 'default: "off"', 'default: [{option: "on", when: {a: b}}]', "axes[2].default[0].when.a", "no axis"),
    Wrong("axis twice", "name: cache\n", "name: Variant\n", "axes[2].name", "Variant is already the name of an axis above"),
    Wrong("option twice", '{name: "on", title: "On"}', '{name: "OFF"}', "axes[2].options[1].name", "already the name of an option"),
    serving("two hardware axes", "launch:", "  - {name: more, kind: hardware, title: M, options: [{name: a, hardware: gaudi2, cards: 1}]}\nlaunch:",
            "axes", "need exactly one axis of kind hardware"),
    serving("hardware of another engine", "hardware: gaudi2", "hardware: H200", "axes[0].options[0].hardware", "does not run on H200"),
    serving("cards over nodes", "cards: 2}", "cards: 2, nodes: 3}", "axes[0].options[0].cards", "do not divide evenly over the nodes"),
    serving("image of nothing", "launch:", "  - {name: image, kind: image, title: I, options: [{name: a}]}\nlaunch:",
            "axes[2].options[0]", "needs a reference, or the components"),
    serving("option never reached", "weights_gb: 14}", "weights_gb: 14}\n      - {name: b, precision: bf16, model: acme/Small}\n"
            "  - {name: x, kind: feature, title: X, options: [{name: a, when: {variant: plain}, because: A.}, {name: b, when: {variant: b}, because: B.}]}\n"
            "  - {name: z, kind: feature, title: Z, options: [{name: a}, {name: c, when: {variant: plain, x: b}, because: C.}]}",
            "axes[3].options[1]", "option c can never be chosen"),
    serving("too many axes", "launch:", "".join(f"  - {{name: g{i}, kind: feature, title: G, options: [{{name: a}}]}}\n" for i in range(31)) + "launch:",
            "axes", "at most 32"),
    serving("too many selections", "launch:", "".join(f"  - {{name: f{i}, kind: feature, title: F, options: [{{name: a}}, {{name: b}}]}}\n"
            for i in range(13)) + "launch:", "axes", "more than 4,096 selections"),
    Wrong("line that is never printed", '{env: CACHE, value: "1", when: {cache: "on"}}',
          '{env: CACHE, value: "1", when: {hardware: two, variant: half}}', "launch[1].when", "never holds for any selection"),
    Wrong("line of an unknown option", 'when: {cache: "on"}}', 'when: {cache: "yes"}}', "launch[1].when.cache", "axis cache has no option 'yes'"),
    Wrong("line of an unknown axis", 'when: {cache: "on"}}', "when: {cash: a}}", "launch[1].when.cash", "no axis 'cash' above, did you mean cache?"),
]  # fmt: skip
"""Faults of choices."""

LAUNCH = [
    Wrong("flag twice", TP, f'{TP}\n  - {{arg: --tensor-parallel-size, value: "1"}}', "launch[6].arg", "stands twice: add repeat: true"),
    Wrong("env twice", "{env: CACHE,", "{env: DIR,", "launch[1].env", "DIR is set twice"),
    Wrong("second value lost", TP, '{arg: --a, value: x, values: [z]}', "launch[5].values", "stands beside value: use one of them"),
    Wrong("equals and no value", TP, "{arg: --a, equals: true}", "launch[5].equals", "needs a value"),
    Wrong("negative value", TP, '{arg: --seed, value: "-1"}', "launch[5].value", "add equals: true to print --seed=…"),
    Wrong("dash in one of several", TP, '{arg: --a, values: [x, "-y"]}', "launch[5].values[1]", "begins with a dash"),
    Wrong("dash after nothing", TP, '{arg: --a, value: {join: ["", "-y"]}}', "launch[5].value", "begins with a dash"),
    Wrong("flag in the serve words", SERVE, 'serve: [vllm, serve, {var: DIR}, "--port=1"]', "launch[4].serve[3]", "is a flag"),
    Wrong("too many cards", TP, '{arg: --tensor-parallel-size, value: "4"}', "launch[5].value", "tensor parallel 4 takes 4 cards, and there are 2"),
    Wrong("half a rank", TP, '{arg: --tensor-parallel-size, value: "7.5"}', "launch[5].value", "must be a whole number from 1, not '7.5'"),
    Wrong("no ranks", TP, '{arg: --tensor-parallel-size, value: "0"}', "launch[5].value", "must be a whole number from 1, not '0'"),
    Wrong("context too long", 'value: "4096"', 'value: "8192"', "launch[6].value", "more than the 4,096 tokens the model was made for"),
    Wrong("no such port", PORT, '{arg: --port, value: "80000"}', "launch[9].value", "no such port"),
    Wrong("weights that do not fit", "weights_gb: 14", "weights_gb: 193", "axes", "193 GB of weights do not fit into 192 GB"),
    Wrong("flag that needs a flag", "  - {arg: --enable-auto-tool-choice}\n", "", "launch[7].arg", "--tool-call-parser needs --enable-auto"),
    Wrong("undefined variable", "{var: DIR}", "{var: DIRR}", "launch[4].serve[2]", "DIRR is not defined above this line, did you mean DIR?"),
    Wrong("undefined variable in a run step", "apply_all.py]}]", "apply_all.py]}, {var: HOM}]", "launch[3].run[2]", "HOM is not defined above this line"),
    Wrong("variable of outside in an env", '"1"', "{var: COOKBOOK}", "launch[1].value", "only a run step may refer to it"),
    Wrong("env of the shell", "env: CACHE", "env: UID", "launch[1].env", "UID is the shell's own variable"),
    Wrong("keyword as program", "[python3,", "[exec,", "launch[3].run[0]", "must be the plain name of a program"),
    Wrong("program with a space", "[python3,", '["python3 -u",', "launch[3].run[0]", "must be the plain name of a program"),
    Wrong("another program", "serve: [vllm,", "serve: [sglang,", "launch[4].serve[0]", "must be vllm, the program of vllm-gaudi"),
    Wrong("no serve command", f"  - {SERVE}\n", "", "launch", "has no serve item"),
    Wrong("serve only at times", SERVE, SERVE + '\n    when: {cache: "on"}', "launch", "has no serve command"),
    Wrong("two serve commands", SERVE, f"{SERVE}\n  - {SERVE}", "launch[5]", "is a second serve command"),
    Wrong("env after the command", AFTER_ALL, '  - {env: LATE, value: "1"}\nfixes:', "launch[9]", "a variable can not stand after a flag"),
    Wrong("run after the command", AFTER_ALL, "  - run: [ls]\nfixes:", "launch[9]", "a run step can not stand after a flag"),
    Wrong("comment in the command", AFTER_ALL, "  - comment: Hi\n" + AFTER_ALL, "launch[9]", "can not stand inside the command"),
    serving("comment of nothing", "acme/Small]\n", "acme/Small]\n  - comment: The end\n", "launch[1]", "a comment can not stand inside the command, after the serve command"),
    serving("comment before a flag", "acme/Small]\n", "acme/Small]\n  - comment: How many\n  - {arg: --tensor-parallel-size, value: \"2\"}\n",
            "launch[1]", "a comment can not stand inside the command, after the serve command"),
    serving("no model to serve", ", acme/Small]\n", "]\n", "launch[0]", "names no model: add it to the command, or --model"),
    serving("digits of another script", "acme/Small]\n", "acme/Small]\n  - {arg: --tensor-parallel-size, value: \"２\"}\n",
            "launch[1].value", "must be a whole number from 1, not '２'"),
    *(serving(f"{name} is the shell's", "launch:\n", f"launch:\n  - {{env: {name}, value: \"1\"}}\n", "launch[0].env", "shell")
      for name in ("TMOUT", "PROMPT_COMMAND", "CDPATH", "histchars", "HISTFILE")),
    *(serving(f"{name} is a builtin", "launch:\n", f"launch:\n  - run: [{name}, -v]\n", "launch[0].run[0]", "none of the shell's own words")
      for name in ("printf", "hash", "getopts", "kill", "wait", "trap")),
    serving("pipeline and tensor parallel", "acme/Small]\n",
            "acme/Small]\n  - {arg: -tp, value: \"2\"}\n  - {arg: --pipeline-parallel-size, value: \"2\"}\n",
            "launch[1].value", "tensor parallel 2 × pipeline parallel 2 takes 4 cards, and there are 2"),
    serving("data parallel", "acme/Small]\n", "acme/Small]\n  - {arg: --data-parallel-size, value: \"16\"}\n", "launch[1].value",
            "data parallel 16 takes 16 cards, and there are 2"),
    Wrong("underscores", TP, TP.replace("tensor-parallel-size", "tensor_parallel_size"), "launch[5].arg", "write --tensor-parallel-size"),
    Wrong("twice in two spellings", PORT, f"{PORT}\n  - {{arg: -tp, value: \"2\"}}", "launch[10].arg", "-tp stands twice, as --tensor-parallel-size"),
    serving("two models", "serve, acme/Small]", "serve, acme/Small, acme/Small]", "launch[0].serve[3]", "is a second model"),
    serving("a model and a flag for it", "acme/Small]\n", "acme/Small]\n  - {arg: --model, value: acme/Small}\n", "launch[1].value", "a second model"),
    serving("another command", "[vllm, serve, acme/Small]", "[vllm, bench, acme/Small]", "launch[0].serve", "must begin with vllm, serve"),
    serving("axis that is a number", "name: variant", 'name: "1"', "axes[1].name", "begins with a letter"),
    serving("another model", "serve, acme/Small]", "serve, acme/Big]", "launch[0].serve[2]",
          "serves acme/Big, and the variant chosen is acme/Small"),
    Wrong("another model, inline", "value: acme/Small}\n", "value: acme/Big}\n", "launch[2].value", "serves acme/Big, and the", SGLANG),
    serving("NUL", "acme/Small]\n", 'acme/Small]\n  - {arg: --a, value: "a\\0"}\n', "launch[1].value", "NUL character, which no process can receive"),
    Wrong("variable that nobody needs", "requires:", "requires:\n  - {variable: HOST, means: Nothing.}", "requires[0]", "no run step refers to HOST"),
    Wrong("reference inline", "value: acme/Small}\n", "value: {var: A}}\n", "launch[2].value", "sets its variables for the command alone", SGLANG),
    Wrong("run step inside the command", "  - serve:", "  - run: [ls]\n  - serve:", "launch[1]", "a run step can not stand after a variable", SGLANG),
    Wrong("dp attention without dp", "- serve: [sglang, serve]", "- serve: [sglang, serve]\n  - {arg: --enable-dp-attention}", "launch[2].arg",
          "--enable-dp-attention needs --dp", SGLANG),
]  # fmt: skip
"""Faults of the launch block."""

EVIDENCE = [
    Wrong("measured without a date", "status: reported\n    by: Its authors\n    own_code: false",
          "status: measured\n    by: Us\n    own_code: true\n    source_url: https://example.org/log\n    commit: 0123abc\n    command: run", "evidence[0]", "measured_on is missing"),
    Wrong("measured without a command", "status: reported\n    by: Its authors\n    own_code: false",
          "status: measured\n    by: Us\n    own_code: true\n    source_url: https://example.org/log\n    commit: 0123abc\n    measured_on: 2026-08", "evidence[0]", "command is missing"),
    *(Wrong(f"no record: {record}", "status: reported\n    by: Its authors\n    own_code: false\n    source: The page",
            f"{MEASURED}\n    by: Us\n    own_code: true\n    source: {record}", "evidence[0].source", "is no file of this repository: name the record")
      for record in ("The page", "records/none.log", "../log", "/etc/hosts", "recipes")),
    Wrong("measured by others", "status: reported", f"{MEASURED}\n    source_url: https://example.org/log", "evidence[0].own_code", "else it is reported"),
    Wrong("a day to come", "status: reported", "status: reported\n    measured_on: 2999-01-01", "evidence[0].measured_on", "is still to come"),
    Wrong("figure in a title", "title: Golden answers", 'title: "{{ model.context_tokens }}"', "checks[0].title", "is not filled in here"),
    Wrong("no day of the calendar", "status: reported", "status: reported\n    measured_on: 2026-02-30", "evidence[0].measured_on", "2026-02-30 is no day"),
    Wrong("arm of an incomplete selection", ARM, "{hardware: two, variant: plain}", "evidence[0].arms[0].selection", "must be complete and as spelt"),
    Wrong("arm of another spelling", ARM, '{hardware: Two, variant: plain, cache: "off"}', "evidence[0].arms[0].selection", "must be complete and as spelt"),
    Wrong("arm of an unknown axis", ARM, '{hardware: two, variants: plain, cache: "off"}', "evidence[0].arms[0].selection", "no axis 'variants'"),
    Wrong("arm of what is not offered", ARM, '{hardware: two, variant: half, cache: "off"}', "evidence[0].arms[0].selection", "is not offered"),
    Wrong("arm of nothing", "        setup: {description: Somewhere else}\n", "", "evidence[0].arms[1]", "needs either selection, or setup"),
    Wrong("arm twice", "        setup: {description: Somewhere else}\n", "        setup: {description: Somewhere else}\n"
          "      - {name: old, title: Old, setup: {description: There}}\n", "evidence[0].arms[2].name", "old is already the name of an arm above"),
    Wrong("arm without results", "        setup: {description: Somewhere else}\n", "        setup: {description: Somewhere else}\n"
          "      - {name: idle, title: Idle, setup: {description: None}}\n", "evidence[0].arms[2]", "arm idle has no results"),
    Wrong("result of an unknown arm", "base: {passed", "bas: {passed", "checks[0].results.bas", "no arm 'bas' in evidence, did you mean base?"),
    Wrong("figure of an unknown arm", "arm: old,", "arm: odl,", "performance[0].columns[1].arm", "no arm 'odl' in evidence, did you mean old?"),
    Wrong("more passed than asked", "passed: 11", "passed: 13", "checks[0].results.base.passed", "13 passed of 12"),
    Wrong("a pass below the count", "{passed: 11, of: 12}", "{outcome: pass, passed: 11, of: 12}", "checks[0].results.base.outcome",
          "is a pass below the count asked: say in detail why"),
    Wrong("a failure of nothing", "{passed: 11, of: 12}", "{outcome: fail, passed: 12, of: 12}", "checks[0].results.base.outcome",
          "fails, and all that was asked passed"),
    Wrong("passed of nothing", "{passed: 11, of: 12}", "{passed: 11}", "checks[0].results.base", "passed and of belong together"),
    Wrong("low above high", "{low: 1, high: 2}", "{low: 3, high: 2}", "checks[0].results.old.value.low", "3 is more than high, 2"),
    Wrong("low above high in a table", "{low: 20, high: 21}", "{low: 22, high: 21}", "performance[0].columns[0].values[1].low", "22 is more than"),
    Wrong("detail of no value", "details: {base: alone}", "details: {old: alone}", "measurements[0].details.old", "no value for arm 'old'"),
    Wrong("check twice", "checks:\n", "checks:\n  - {name: golden, title: G, results: {base: {outcome: pass}}}\n", "checks[1].name", "golden is already used"),
    Wrong("column twice", "values: [5, null]}", "values: [5, null]}\n      - {name: fast, title: F, arm: base, values: [1, 2]}", "performance[0]", "column fast stands twice"),
    Wrong("too few rows", "values: [0.5, 0.25]", "values: [0.5]", "performance[1]", "column score has 1 values for 2 rows"),
    Wrong("unknown column", "of: [fast, slow]", "of: [fast, solw]", "performance[0]", "no column 'solw', did you mean slow?"),
    Wrong("unknown column of a chart", "columns: [fast, slow]", "columns: [fast, solw]", "performance[0].charts[0].columns[1]", "no column 'solw'"),
    Wrong("ratio of one", "of: [fast, slow]", "of: [fast]", "performance[0]", "column gain: ratio takes 2 of, not 1"),
    Wrong("ratio by zero", "values: [5, null]", "values: [0, null]", "performance[0]", "column gain, row 1: divides by zero"),
    Wrong("per card of how many", "compute: ratio, of: [fast, slow]", "compute: per_card, of: [slow]", "performance[0]", "how many cards arm old ran on"),
    Wrong("words times a figure", "values: [0.5, 0.25]}", "values: [0.5, 0.25]}\n    derived: [{name: x, title: X, compute: same, of: [score], times_rows: true}]",
          "performance[1]", "column x: times_rows needs rows that are numbers"),
    Wrong("table of other rows", "values: [0.5, 0.25]}", "values: [0.5, 0.25]}\n    derived: [{name: x, title: X, compute: same, of: [speed.fast]}]",
          "performance[1]", "table 'speed' has other rows"),
    Wrong("table below", "of: [fast, slow]", "of: [words.score, slow]", "performance[0]", "table 'words' does not stand above this one"),
]  # fmt: skip
"""Faults of evidence and figures."""

NAMES = [
    Wrong("unknown related", "[acme/Other]", "[acme/Othr]", "related[0]", "no recipe acme/Othr, did you mean acme/Other?"),
    Wrong("related to itself", "[acme/Other]", "[acme/Small]", "related[0]", "is this recipe itself"),
    Wrong("dangling link", 'url: "https://example.org/acme/Small"', "path: docs/none.md", "links[0].path", "docs/none.md does not exist"),
    Wrong("link to nothing", ', url: "https://example.org/acme/Small"', "", "links[0]", "needs either url or path"),
    Wrong("link above the repository", 'url: "https://example.org/acme/Small"', "path: recipes/../../x", "links[0].path", "is not a plain path"),
    Wrong("absolute link", 'url: "https://example.org/acme/Small"', "path: /etc/hosts", "links[0].path", "is not a path inside this repository"),
    Wrong("link of no length", 'url: "https://example.org/acme/Small"', f"path: {'a' * 5000}", "links[0].path", "does not exist"),
    Wrong("missing profile", "fixes/profiles/v1.json, ", "", "fixes.profile", "fixes/profiles/v1.json does not exist"),
    Wrong("missing port", ", ports/small/PORT.md]", "]", "port", "ports/small/PORT.md does not exist in this repository; if it is still to come, list it"),
    Wrong("missing program of a run step", "fixes/apply_all.py, ", "", "launch[3].run[1]", "fixes/apply_all.py does not exist"),
    Wrong("pending and named by nothing", ", ports/small/PORT.md]", ", ports/small/PORT.md, ports/smal]", "pending[3]", "nothing in this recipe names ports/smal, did you"),
    Wrong("pending and there", "fixes/apply_all.py", "fixes/apply_all.py", "pending[0]", "exists now: take it off", files={"fixes/apply_all.py": ""}),
    Wrong("unknown fix", "fixes/profiles/v1.json, ", "", "fixes.required[0].name", "profile v1 has no fix 'first-fix', did you mean frist-fix?",
          files={"fixes/profiles/v1.json": PROFILE}),
    Wrong("unknown figure", "measurements.ttft.base", "measurements.ttff.base", "summary", "no measurement 'ttff', did you mean ttft?"),
    Wrong("figure of an issue", "speed.fast[1] }}.", "speed.fats[1] }}.", "known_issues[0].text", "no column 'fats', did you mean fast?"),
    Wrong("figure that is not closed", "speed.fast[1] }}.", "speed.fast[1] }.", "known_issues[0].text", "{{ is not closed by }}"),
    Wrong("misspelt flag in a note", "`--max-model-len`", "`--max-modle-len`", "notes[0]", "did you mean --max-model-len?"),
]  # fmt: skip
"""Faults of names of other things."""

ALL = [*FORM, *CHOICES, *LAUNCH, *EVIDENCE, *NAMES]

GUIDES = [
    ("directive left out", "{{ checks }}\n\n", "", 18, "{{ checks }} is missing: the recipe has checks that would not be shown"),
    ("table left out", "{{ performance.words }}\n\n", "", 18, "{{ performance.words }} is missing: the table would not be shown"),
    ("unknown directive", "{{ configuration }}", "{{ configuratoin }}", 3, "is not of the form"),
    ("unknown table", "{{ performance.words }}", "{{ performance.words }}\n{{ performance.word }}", 14, "no table 'word', did you mean words"),
    ("unknown figure", "speed.fast[1]", "speed.fast[3]", 5, "has no row '3' (rows: 1, 2)"),
    ("figure not closed", "fast[1] }}", "fast[1] }", 5, "{{ is not closed by }} on the same line"),
    ("directive inside a line", "{{ checks }}", "See {{ checks }}", 7, "must stand on a line of its own, not indented"),
    ("image", "## A guide", "## A guide\n\n![a picture](https://example.org/x.png)", 3, "an image: pages load nothing from elsewhere"),
    ("link to a file", "## A guide", "## A guide\n\nSee [this](notes.md).", 3, "a link to notes.md: only https://"),
    ("link to nothing", "## A guide", "## A guide\n\nSee [this]().", 3, "a link to nothing: only https://"),
    ("link by reference", "## A guide", "## A guide\n\nSee [this].\n\n[this]: https://example.org", 5, "write it where the link stands"),
    ("part in code", "{{ checks }}", "```text\n{{ checks }}\n```", 8, "{{ checks }} stands in code, where no part is drawn"),
    ("raw HTML", "## A guide", "## A guide\n\nSo<br>bold", 3, "<br is shown as it stands: raw HTML is not used"),
    ("image by reference", "## A guide", "## A guide\n\n![x]", 3, "an image: pages load nothing from elsewhere"),
    ("title in a list", "## A guide", "## A guide\n\n- # T", 3, "a heading of the first level"),
    ("title", "## A guide", "# A guide", 1, "a heading of the first level is the name of the recipe: begin with ##"),
    ("title with a line below", "## A guide", "A guide\n===", 2, "a heading of the first level"),
    ("code that is not closed", "## A guide", "## A guide\n\n~~~bash\nls\n```", 3, "this code block is never closed"),
    ("part placed twice", "{{ avoid }}", "{{ avoid }}\n\n{{ checks }}", 19, "{{ checks }} stands twice: place each part once"),
    ("flag that the block has not", "## A guide", "## A guide\n\nUse `--tensor-paralel-size 4`.", 3, "did you mean --tensor-parallel-size?"),
]  # fmt: skip
"""Faults of a guide: name, old, new, line, message."""
