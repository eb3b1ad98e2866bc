"""The recipe language: one strict pydantic model for each thing a ``recipe.yaml`` says.

These models hold what one file can be wrong about by itself.  What needs more than one place at once (a condition that
names an axis, a result that names an arm, a file that must exist) is in :mod:`schema.checks`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from schema import vocabulary
from schema.problems import did_you_mean


class Model(BaseModel):
    """Base of all: unknown keys and values of another type are refused, nothing is converted, nothing changes later."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


# --- words -----------------------------------------------------------------------------------------------------------


def _one_of(kind: str, known: Callable[[], Iterable[str]]) -> tuple[AfterValidator, WithJsonSchema]:
    """A closed vocabulary as validator and, for editors, as an enumeration."""

    def check(name: str) -> str:
        if name not in known():
            raise PydanticCustomError(
                "vocabulary", "unknown {kind} {name}{hint}",
                {"kind": kind, "name": repr(name), "hint": did_you_mean(name, known(), everything_up_to=12)},
            )  # fmt: skip
        return name

    return AfterValidator(check), WithJsonSchema({"type": "string", "enum": sorted(known())})


PATTERNS: dict[str, str] = {}
"""What each pattern below asks for, in words."""


def _text(pattern: str, means: str) -> StringConstraints:
    PATTERNS[pattern] = means
    return StringConstraints(pattern=pattern)


def _number(value: Any) -> Any:
    return Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value


_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]")


def _seen(text: str) -> str:
    if not text.isprintable() and (match := _UNSEEN.search(text)):
        raise PydanticCustomError("unseen", "holds U+{code}, a character that can not be seen", {"code": f"{ord(match[0]):04X}"})
    return text


Text: TypeAlias = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True), AfterValidator(_seen)]
"""Words for a reader: inline Markdown, and ``{{ … }}`` for figures that stand elsewhere in the recipe."""
Line: TypeAlias = Annotated[Text, _text(r"^[^\n\t]*$", "text of one line")]
"""Words that may stand in a comment of the launch block."""
Name: TypeAlias = Annotated[
    str, _text(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", "a name of letters, digits, dots, dashes and underscores, up to 64")
]
"""A name that stands in URLs and on command lines."""
AxisName: TypeAlias = Annotated[
    str,
    _text(r"^[A-Za-z][A-Za-z0-9._-]{0,63}$", "a name of letters, digits, dots, dashes and underscores that begins with a letter"),
]
"""A name that stands in URLs and on command lines, and is no number: programs may order numbers before other names."""
Key: TypeAlias = Annotated[
    str, _text(r"^[a-z][a-z0-9_]{0,63}$", "a name of small letters, digits and underscores that begins with a letter")
]
"""A name that guides refer to in ``{{ … }}``."""
ColumnRef: TypeAlias = Annotated[str, _text(r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)?$", "a column or table.column")]
ModelId: TypeAlias = Annotated[str, _text(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$", "an id of the form owner/name")]
"""A model's id on Hugging Face, ``owner/name``."""
RepoPath: TypeAlias = Annotated[str, _text(r"^[A-Za-z0-9_][^\\]*$", "a path inside this repository")]
"""A path inside this repository, with forward slashes."""
Url: TypeAlias = Annotated[str, _text(r"^https://[^\s<>\"]+$", "an https:// address")]
_VARIABLE = _text(r"^[A-Za-z_][A-Za-z0-9_]*$", "the name of a variable")
Date: TypeAlias = Annotated[
    str, _text(r"^\d{4}-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?$", "a day as 2026-08-21 or a month as 2026-08")
]
"""A day ``YYYY-MM-DD``, or a month ``YYYY-MM`` where the day is not known."""
Commit: TypeAlias = Annotated[str, _text(r"^[0-9a-f]{7,40}$", "a commit of 7 to 40 hexadecimal digits")]
Number: TypeAlias = Annotated[Decimal, BeforeValidator(_number), WithJsonSchema({"type": "number"}), Field(allow_inf_nan=False)]
Count: TypeAlias = Annotated[int, Field(ge=1, le=1_000_000_000)]
Size: TypeAlias = Annotated[Number, Field(gt=0), WithJsonSchema({"type": "number", "exclusiveMinimum": 0})]

_hardware = _one_of("hardware", vocabulary.hardware)
_engine = _one_of("engine", vocabulary.engines)
_precision = _one_of("precision", vocabulary.precisions)
_status = _one_of("status", vocabulary.statuses)
HardwareName: TypeAlias = Annotated[str, _hardware[0], _hardware[1]]
EngineName: TypeAlias = Annotated[str, _engine[0], _engine[1]]
PrecisionName: TypeAlias = Annotated[str, _precision[0], _precision[1]]
StatusName: TypeAlias = Annotated[str, _status[0], _status[1]]

When: TypeAlias = dict[
    Name,
    Annotated[
        Annotated[str, Tag("one")] | Annotated[list[str], Field(min_length=1), Tag("any of")],
        Discriminator(lambda value: "any of" if isinstance(value, list) else "one"),
    ],
]
"""A condition: each axis named has one of the options named."""


def condition(when: When | None) -> dict[str, list[str]]:
    """A condition in its one normal form: axis to the options that satisfy it; empty means always."""
    return {axis: [options] if isinstance(options, str) else list(options) for axis, options in (when or {}).items()}


# --- the launch block ------------------------------------------------------------------------------------------------


class Variable(Model):
    """A reference to a variable: one that the block defines, or in a ``run`` step one that ``requires`` declares."""

    var: Annotated[str, _VARIABLE]
    """The variable's name, without ``$``."""


class Joined(Model):
    """One word put together from text and variables."""

    join: Annotated[list[Annotated[
        Annotated[str, Tag("text")] | Annotated[Variable, Tag("variable")],
        Discriminator(lambda value: "variable" if isinstance(value, dict | Variable) else "text"),
    ]], Field(min_length=1)]  # fmt: skip
    """The pieces, in order."""


def _word_kind(value: Any) -> str:
    if isinstance(value, Variable) or (isinstance(value, dict) and "join" not in value):
        return "variable"
    return "joined" if isinstance(value, dict | Joined) else "text"


Word: TypeAlias = Annotated[
    Annotated[str, Tag("text")] | Annotated[Variable, Tag("variable")] | Annotated[Joined, Tag("joined")],
    Discriminator(_word_kind),
]
"""One word of a command, exactly as the process receives it: text (always quoted in YAML if it looks like a number), or
``{var: NAME}``, or ``{join: [text, {var: NAME}, …]}``."""


class _Item(Model):
    when: When | None = None
    """Print this only for these choices; without it, always."""
    means: Text | None = None
    """What the line is for, in a sentence; shown under the block, not in it."""


class EnvItem(_Item):
    """An environment variable of the served process."""

    env: Annotated[str, _VARIABLE]
    """Its name."""
    value: Word
    """Its value: text, so numbers stand in quotes."""


class CommentItem(_Item):
    """A comment of one line, above what follows it."""

    comment: Line
    """Its text, without ``#``."""


class RunItem(_Item):
    """A command that runs before the server starts."""

    run: Annotated[list[Word], Field(min_length=1)]
    """Its words."""
    stop_on_failure: bool = False
    """End the block with a non-zero exit code if the command fails."""


class ServeItem(_Item):
    """The serve command itself, without its flags."""

    serve: Annotated[list[Word], Field(min_length=1)]
    """Its first words: the program, the subcommand, positional arguments."""


class ArgItem(_Item):
    """One flag of the serve command."""

    arg: Annotated[str, _text(r"^--?[A-Za-z][A-Za-z0-9._-]*$", "a flag such as --port")]
    """The flag, with its dashes."""
    value: Word | None = None
    """Its one value, if it takes one: text, so numbers stand in quotes."""
    values: Annotated[list[Word], Field(min_length=1)] | None = None
    """Its values, if it takes several."""
    equals: bool = False
    """Print ``--flag=value``, which a value that begins with a dash needs."""
    repeat: bool = False
    """This flag may stand more than once; each time adds to it."""


_ITEMS = ("env", "comment", "run", "serve", "arg")


def _item_kind(value: Any) -> str | None:
    if isinstance(value, _Item):
        return type(value).__name__.removesuffix("Item").lower()
    present = [kind for kind in _ITEMS if isinstance(value, dict) and kind in value]
    return present[0] if len(present) == 1 else None


LaunchItem: TypeAlias = Annotated[
    Annotated[EnvItem, Tag("env")]
    | Annotated[CommentItem, Tag("comment")]
    | Annotated[RunItem, Tag("run")]
    | Annotated[ServeItem, Tag("serve")]
    | Annotated[ArgItem, Tag("arg")],
    Discriminator(
        _item_kind,
        custom_error_type="launch_item",
        custom_error_message="must have exactly one of env, comment, run, serve, arg",
    ),
]


class Requirement(Model):
    """A variable that must be set where the block runs."""

    variable: Annotated[str, _VARIABLE]
    """Its name, without ``$``."""
    means: Text
    """What it must hold."""


# --- choices ---------------------------------------------------------------------------------------------------------


class _Offered(Model):
    when: When | None = None
    """Offer this only for these choices, made on axes above."""
    because: Text | None = None
    """Why it is not offered otherwise, said to the reader."""


class _Option(_Offered):
    name: Name
    """The name used in ``when``, in URLs and in ``--set``."""
    title: Text | None = None
    """What the reader sees; the name, if left out."""
    summary: Text | None = None
    """One line about it."""


class HardwareOption(_Option):
    """A kind and number of cards."""

    hardware: HardwareName
    """The kind of accelerator."""
    cards: Count
    """How many of them, over all nodes."""
    nodes: Count = 1
    """On how many machines."""


class Component(Model):
    """One pinned piece of software."""

    name: Line
    """What it is called."""
    version: Line | None = None
    """Version, tag or branch."""
    commit: Commit | None = None
    """The commit it is pinned to."""


class ImageOption(_Option):
    """A container image."""

    reference: Annotated[str, _text(r"^[a-z0-9][\w./:@-]*$", "an image reference")] | None = None
    """What ``docker pull`` takes; none if the image is built by the reader."""
    components: list[Component] = []
    """What is pinned inside."""
    accepts: Name | None = None
    """The catalog under `schema/catalogs` that the flags of its engine are checked against: `vllm-0.30.0`."""


class VariantOption(_Option):
    """A checkpoint."""

    precision: PrecisionName
    """The number format of most of its weights."""
    model: ModelId
    """The checkpoint on Hugging Face."""
    weights_gb: Size | None = None
    """Size of the weights as served, in GB (1e9 bytes)."""


class FeatureOption(_Option):
    """A feature's state."""


class AxisDefault(Model):
    """A default that holds for some choices."""

    option: Name
    """The option taken."""
    when: When | None = None
    """For these choices, made on axes above; without it, always."""


class _Axis(_Offered):
    name: AxisName
    """The name used in ``when``, in URLs and in ``--set``."""
    title: Text
    """What the reader sees."""
    default: Annotated[
        Annotated[Name, Tag("one")] | Annotated[list[AxisDefault], Field(min_length=1), Tag("by choice")],
        Discriminator(lambda value: "by choice" if isinstance(value, list) else "one"),
    ] | None = None  # fmt: skip
    """The option taken before the reader chooses: a name, or a list of which the first that holds is taken.  Without it, or
    where it is not offered, the first option that is."""


class HardwareAxis(_Axis):
    """Which hardware."""

    kind: Literal["hardware"]
    """Always `hardware`."""
    options: Annotated[list[HardwareOption], Field(min_length=1)]
    """Kinds and numbers of cards."""


class ImageAxis(_Axis):
    """Which image."""

    kind: Literal["image"]
    """Always `image`."""
    options: Annotated[list[ImageOption], Field(min_length=1)]
    """Container images."""


class VariantAxis(_Axis):
    """Which checkpoint."""

    kind: Literal["variant"]
    """Always `variant`."""
    options: Annotated[list[VariantOption], Field(min_length=1)]
    """Checkpoints."""


class FeatureAxis(_Axis):
    """A feature to have or not."""

    kind: Literal["feature"]
    """Always `feature`."""
    options: Annotated[list[FeatureOption], Field(min_length=1)]
    """The states of the feature, often `"on"` and `"off"`."""


Axis: TypeAlias = Annotated[HardwareAxis | ImageAxis | VariantAxis | FeatureAxis, Field(discriminator="kind")]
Option: TypeAlias = HardwareOption | ImageOption | VariantOption | FeatureOption


# --- evidence --------------------------------------------------------------------------------------------------------


class Range(Model):
    """A figure that was seen between two values."""

    low: Number
    """The lowest value seen."""
    high: Number
    """The highest value seen."""


Figure: TypeAlias = Annotated[
    Annotated[Number, Tag("number")] | Annotated[Range, Tag("range")],
    Discriminator(lambda value: "range" if isinstance(value, dict | Range) else "number"),
]


class Setup(Model):
    """Conditions that are no selection of this recipe."""

    description: Text
    """What ran, in words."""
    hardware: HardwareName | None = None
    """The kind of accelerator, if it is known."""
    cards: Count | None = None
    """How many, over all nodes."""
    nodes: Count | None = None
    """On how many machines."""


class Arm(Model):
    """One side of a comparison: one thing that was run and gave results."""

    name: Key
    """The name results refer to."""
    title: Text
    """The heading of its column."""
    selection: dict[Name, str] | None = None
    """The complete selection of this recipe that ran; a badge shows for exactly this one."""
    setup: Setup | None = None
    """What ran instead, if it was no selection of this recipe."""


class Evidence(Model):
    """Where results come from: who measured, on what, with what."""

    name: Key
    """A name of its own among the evidence."""
    title: Text
    """What it is, in a few words."""
    status: StatusName
    """Measured for this repository, or reported by the source."""
    by: Text
    """Who measured."""
    own_code: bool
    """Whether this repository's own code, as it stands here, was what ran."""
    source: Text
    """Where it was published, or the record in this repository."""
    source_url: Url | None = None
    """The address of the source."""
    commit: Commit | None = None
    """The commit of the source, or of this repository when it ran."""
    measured_on: Date | None = None
    """When; left out if the source does not say."""
    command: Text | None = None
    """What was run."""
    conditions: Text
    """Machine, image and procedure."""
    arms: Annotated[list[Arm], Field(min_length=1)]
    """What was run, each with a name that results refer to."""


class Result(Model):
    """What a check gave on one arm."""

    outcome: Literal["pass", "fail"] | None = None
    """Whether it passed, where that is not a matter of counting."""
    passed: Annotated[int, Field(ge=0)] | None = None
    """How many passed …"""
    of: Count | None = None
    """… of how many."""
    value: Figure | None = None
    """A figure, in the check's unit."""
    detail: Text | None = None
    """What else there is to say."""


class Check(Model):
    """A check of correctness and what it gave, arm by arm."""

    name: Key
    """The name that guides use."""
    title: Text
    """What is checked, in a few words."""
    conditions: Text | None = None
    """What was asked, how often, with what settings."""
    unit: Text | None = None
    """The unit of the values, if results have values."""
    results: Annotated[dict[Key, Result], Field(min_length=1)]
    """By arm."""


class Measurement(Model):
    """A single figure per arm."""

    name: Key
    """The name that guides use."""
    title: Text
    """What is measured, in a few words."""
    unit: Text
    """The unit of the values."""
    better: Literal["lower", "higher"] | None = None
    """Which way is better, if either is."""
    values: Annotated[dict[Key, Figure], Field(min_length=1)]
    """By arm."""
    details: dict[Key, Text] = {}
    """What is to be said of one arm's value."""
    measured_as: Text
    """Under which conditions."""


class Rows(Model):
    """What the rows of a table are."""

    name: Key
    """A name of its own."""
    title: Text
    """The heading of the first column."""
    values: Annotated[list[Annotated[
        Annotated[Number, Tag("number")] | Annotated[Text, Tag("text")],
        Discriminator(lambda value: "text" if isinstance(value, str) else "number"),
    ]], Field(min_length=1)]  # fmt: skip
    """The rows, numbers or words."""


class Column(Model):
    """One column of figures."""

    name: Key
    """The name that guides, derived columns and charts use."""
    title: Text
    """The heading."""
    unit: Text | None = None
    """The unit of the values."""
    better: Literal["lower", "higher"] | None = None
    """Which way is better, if either is."""
    arm: Key
    """The arm of the evidence that it was measured on."""
    values: list[Annotated[
        Annotated[Number, Tag("number")] | Annotated[Range, Tag("range")] | Annotated[None, Tag("missing")],
        Discriminator(lambda v: "missing" if v is None else "range" if isinstance(v, dict | Range) else "number"),
    ]]  # fmt: skip
    """One figure a row; ``null`` where none was measured."""


class Derived(Model):
    """A column computed from others."""

    name: Key
    """The name that guides, other derived columns and charts use."""
    title: Text
    """The heading."""
    unit: Text | None = None
    """The unit of the result."""
    compute: Literal["ratio", "difference", "sum", "per_card", "same"]
    """``ratio`` a / b; ``difference`` a - b; ``sum`` a + b + …; ``per_card`` a / the cards of its arm; ``same`` a."""
    of: Annotated[list[ColumnRef], Field(min_length=1)]
    """The columns, in that order: of this table, or ``table.column`` of one above with the same rows."""
    times_rows: bool = False
    """Multiply by the row's own value first: a per-stream rate times the streams."""
    digits: Annotated[int, Field(ge=0, le=6)] = 2
    """Digits after the point."""


class Chart(Model):
    """A drawing of some columns against the rows."""

    title: Text
    """The heading."""
    columns: Annotated[list[Key], Field(min_length=1)]
    """The columns drawn, derived ones included."""


class Performance(Model):
    """A table of figures, column by column."""

    name: Key
    """The name that guides use."""
    title: Text
    """The heading of the table."""
    method: Text
    """How one figure is obtained."""
    measured_as: Text
    """Under which conditions."""
    rows: Rows
    """What the rows are."""
    columns: Annotated[list[Column], Field(min_length=1)]
    """What was measured, a column each."""
    derived: list[Derived] = []
    """What is computed from the columns."""
    charts: list[Chart] = []
    """Drawings of columns."""


# --- the recipe ------------------------------------------------------------------------------------------------------


class Licence(Model):
    """The licence of the weights."""

    name: Text
    """What it is called."""
    condition: Text | None = None
    """What an operator must know before serving."""


class ModelFacts(Model):
    """What the model is, whatever the checkpoint."""

    base: ModelId
    """The original model on Hugging Face."""
    total_parameters_b: Size
    """Parameters in 1e9."""
    active_parameters_b: Size | None = None
    """Of these, used for a token, in 1e9."""
    architecture: Text
    """In a few words: ``MoE, MLA attention, 384 routed experts, top 8``."""
    kind: Literal["moe", "dense"]
    """A mixture of experts, or one network for every token."""
    context_tokens: Count
    """The longest context the model was made for, in tokens."""
    inputs: Annotated[list[Literal["text", "image", "video", "audio"]], Field(min_length=1)]
    """What it accepts as served by this recipe."""
    licence: Licence
    """The licence of the weights."""


class Link(Model):
    """A link of the page: to a URL, or to a path of this repository."""

    title: Text
    """The words of the link."""
    url: Url | None = None
    """Where it leads, outside of this site."""
    path: RepoPath | None = None
    """Or a path of this repository."""


class FixReason(Model):
    """A fix this recipe depends on."""

    name: Name
    """The name of the fix, in the profile."""
    because: Text
    """Why this model needs it."""


class Fixes(Model):
    """The fix profile that the block applies."""

    profile: Name
    """The name of a file in `fixes/profiles`."""
    required: list[FixReason] = []
    """The fixes that this model depends on, with the reasons."""


class KnownIssue(Model):
    """Something that a reader will meet or should doubt."""

    text: Text
    """What happens, and what to do about it."""
    holds_for: Text | None = None
    """The version or selection it was seen with."""
    source_url: Url | None = None
    """Where it is tracked or told."""


class Recipe(Model):
    """One model on one engine: what a ``recipe.yaml`` holds.  Its id is its folder, ``recipes/OWNER/NAME``."""

    summary: Text
    """One or two sentences: what is served, how, on what."""
    engine: EngineName
    """What serves it."""
    order: int = 1000
    """Where it stands in lists; smaller is earlier."""
    model: ModelFacts
    """What the model is, whatever the checkpoint."""
    axes: Annotated[list[Axis], Field(min_length=1, max_length=32)]
    """The reader's choices, in the order in which they are made."""
    requires: list[Requirement] = []
    """Variables that must be set where the block runs."""
    launch: Annotated[list[LaunchItem], Field(min_length=1)]
    """The launch block: everything it prints, in order."""
    fixes: Fixes | None = None
    """The fixes that the block applies before it serves."""
    port: Name | None = None
    """The folder under ``ports/`` that this recipe needs; its ``PORT.md`` says how it was ported."""
    pending: list[RepoPath] = []
    """Paths of this repository that the recipe names and that are still to come."""
    related: list[ModelId] = []
    """Ids of other recipes of the same model."""
    links: list[Link] = []
    """Links under the title."""
    evidence: list[Evidence] = []
    """Where results come from; without it there can be none."""
    checks: list[Check] = []
    """Checks of correctness."""
    measurements: list[Measurement] = []
    """Single figures."""
    performance: list[Performance] = []
    """Tables of figures."""
    notes: list[Text] = []
    """What an operator must know before starting."""
    known_issues: list[KnownIssue] = []
    """What a reader will meet or should doubt."""
    avoid: list[Text] = []
    """What not to do, and what happens then."""
