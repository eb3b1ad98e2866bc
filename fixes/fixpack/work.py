"""Plan in memory, then write; verify; revert.

A file is in one of three states: as it came (no record of it), as the pack left it (the record names its digest), or changed by
somebody else since, which is left alone and refused.  What a file shall hold is always made from its original, so applying twice,
going from an older pack to this one, and taking one fix out are all the same step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fixpack.catalog import Fix
from fixpack.editing import MARK, Module, PlaceError
from fixpack.errors import MismatchError, StorageError
from fixpack.image import Package
from fixpack.store import Recorded, Store, digest, replace_source, stale_bytecode

Choice = Callable[[list[str]], list[Fix]]
"""From the names of the fixes that the record says are applied, those that shall be when the run is done, in their order."""


@dataclass(frozen=True)
class Planned:
    """One file: where it is, what it was, is and shall be, and the fixes that shall be in it."""

    name: str
    path: Path
    original: bytes
    current: bytes
    wanted: bytes
    fixes: list[str]


@dataclass(frozen=True)
class Plan:
    """Every file that a run is about; ``fixes`` are those that shall be applied when it is done."""

    fixes: list[Fix]
    files: list[Planned]
    record: dict[str, Recorded]

    @property
    def changes(self) -> list[Planned]:
        """The files that are not yet what they shall be."""
        return [file for file in self.files if file.current != file.wanted]

    @property
    def final_record(self) -> dict[str, Recorded]:
        """What the record shall be: the files that differ from their originals."""
        return {
            file.name: Recorded(digest(file.original), [digest(file.wanted)], file.fixes)
            for file in self.files
            if file.wanted != file.original
        }

    @property
    def settled(self) -> bool:
        """Whether there is nothing to do."""
        stale = any(stale_bytecode(file.path, file.wanted) for file in self.files)
        return not self.changes and self.record == self.final_record and not stale

    @property
    def leaving(self) -> list[str]:
        """The names of fixes that the record has and that shall not be applied."""
        names = [fix.name for fix in self.fixes]
        return [name for name in _applied(self.record) if name not in names]

    def missing(self, fix: Fix) -> bool:
        """Whether a fix is not in every file that it edits."""
        return any(file.name in fix.edits and fix.name not in self._held(file) for file in self.files)

    def _held(self, file: Planned) -> list[str]:
        """The fixes that are in a file as it is."""
        if file.current == file.wanted:
            return file.fixes
        entry = self.record.get(file.name)
        return entry.fixes if entry and digest(file.current) == entry.patched[0] else []


def home(packages: dict[str, Package]) -> Path:
    """The folder that holds the packages, and the pack's own."""
    return packages["vllm"].folder.parent


def plan(choose: Choice, packages: dict[str, Package], store: Store) -> Plan:
    """What the chosen fixes, and no others, would make of the installed files.  Reads only.

    Raises :class:`MismatchError` with every place that is not as a fix expects it, and every file that was changed by hand.
    """
    record = store.record()
    fixes = choose(_applied(record))
    files: list[Planned] = []
    wrong: list[str] = []
    for name in sorted({*record, *(name for fix in fixes for name in fix.edits)}):
        package, _, inside = name.partition("/")
        path = packages[package].folder / inside
        try:
            current = path.read_bytes()
            original = _original(name, current, record, store)
            wanted, applied = _edited(name, original, fixes)
        except FileNotFoundError:
            wrong.append(f"{path}: does not exist")
        except OSError as error:
            raise StorageError(f"{path}: can not be read: {(error.strerror or str(error)).lower()}") from None
        except (PlaceError, UnicodeDecodeError, _ChangedError) as error:
            wrong.append(f"{path}: {error}")
        else:
            files.append(Planned(name, path, original, current, wanted, applied))
    if wrong:
        raise MismatchError(*wrong)
    return Plan(list(fixes), files, record)


def settle(choose: Choice, packages: dict[str, Package], store: Store) -> Plan:
    """Plan, and carry the plan out if there is anything to do.  Returns the plan; its ``changes`` are what was written.

    Raises :class:`MismatchError` before anything is written; :class:`StorageError` when writing fails, and then what was written
    is whole and another run goes on from there.
    """
    try:
        planned = steady_plan(choose, packages, store)
        if planned.settled and store.exists == bool(planned.record):
            return planned
    except (MismatchError, StorageError):
        if not store.exists:  # nobody ever wrote here, so nobody is just writing
            raise
    with store.locked():
        planned = plan(choose, packages, store)
        store.sweep(file.path.parent for file in planned.files)
        _carry_out(planned, store)
    return planned


def steady_plan(choose: Choice, packages: dict[str, Package], store: Store) -> Plan:
    """A plan made without the lock: a run that is just writing may show us a file and not its record, so look again."""
    for _ in range(3):
        try:
            return plan(choose, packages, store)
        except (MismatchError, StorageError):
            time.sleep(0.2)
    return plan(choose, packages, store)


def _carry_out(planned: Plan, store: Store) -> None:
    """Only under the lock, with a plan made under it."""
    final = planned.final_record
    # Until every file is written, the record accepts what it was before as well.
    meanwhile = {
        name: Recorded(entry.original, list(dict.fromkeys([*entry.patched, *_before(planned, name)])), entry.fixes)
        for name, entry in final.items()
    }
    meanwhile = {**planned.record, **meanwhile}
    if meanwhile != planned.record:
        store.keep(file.original for file in planned.files if file.name in final)
        store.write_record(meanwhile)
    for file in planned.files:
        if file.current != file.wanted or stale_bytecode(file.path, file.wanted):
            replace_source(file.path, file.wanted)
    if not final:
        store.forget()
    elif final != meanwhile:
        store.write_record(final)


def _before(planned: Plan, name: str) -> list[str]:
    return planned.record[name].patched if name in planned.record else []


def _applied(record: dict[str, Recorded]) -> list[str]:
    return sorted({name for entry in record.values() for name in entry.fixes})


class _ChangedError(Exception):
    """A file that is neither as it came nor as the pack left it."""


def _original(name: str, current: bytes, record: dict[str, Recorded], store: Store) -> bytes:
    if name not in record:
        if MARK.encode() in current:
            raise _ChangedError(
                "carries fixes of this pack, and there is no record of it: reinstall the package, then run this again"
            )
        return current
    entry = record[name]
    if digest(current) not in (entry.original, *entry.patched):
        raise _ChangedError(
            "was changed since the fixes were applied: put it back, or reinstall the package and remove the record"
        )
    return store.original(entry.original)


def _edited(name: str, original: bytes, fixes: Sequence[Fix]) -> tuple[bytes, list[str]]:
    text = original.decode("utf-8")
    applied = []
    for fix in fixes:
        if edit := fix.edits.get(name):
            try:
                module = Module(text, fix.name)
                edit(module)
                text = module.result()
                compile(text, name, "exec", dont_inherit=True)
            except (PlaceError, SyntaxError, ValueError) as error:
                raise PlaceError(f"{fix.name}: {error}") from None
            applied.append(fix.name)
    return text.encode("utf-8"), applied
