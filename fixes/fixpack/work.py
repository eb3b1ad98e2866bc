"""Plan in memory, then write; verify; revert.

A file is in one of four states: as it came (no record of it, or the record has its digest as the original's); as the pack left it
(the record has that digest); of another build of its package than the record's, and so as it came; or changed by somebody since,
which is left alone and refused.  What a file shall hold is always made from its original, so applying twice, going from an older
pack to this one, and taking one fix out are all the same step.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fixpack.catalog import Fix
from fixpack.editing import BYTE_ORDER_MARK, MARK, Module, PlaceError, parsed
from fixpack.errors import MismatchError, StorageError
from fixpack.image import Package
from fixpack.store import Recorded, Store, digest, discard, drop_stale_bytecode, put, stage, stale_bytecode

Choice = Callable[[list[str]], list[Fix]]
"""From the names of the fixes that the record says are applied, those that shall be when the run is done, in their order."""


@dataclass(frozen=True)
class Planned:
    """One file: of which package, where it is, what it was, is and shall be, and the fixes that shall be in it."""

    name: str
    package: Package
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
    def folders(self) -> set[Path]:
        """The folders of the files."""
        return {file.path.parent for file in self.files}

    @property
    def final_record(self) -> dict[str, Recorded]:
        """What the record shall be: the files that differ from their originals."""
        return {
            file.name: Recorded(digest(file.original), [digest(file.wanted)], file.fixes, file.package.build)
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


def plan(choose: Choice, known: Sequence[Fix], packages: dict[str, Package], store: Store) -> Plan:
    """What the chosen fixes, and no others, would make of the installed files.  Reads only.

    The files of every known fix are looked at, chosen or not: one that carries a fix and is not in the record is a record lost.
    Raises :class:`MismatchError` with every place that is not as a fix expects it, and every file that was changed by hand.
    """
    record = store.record()
    fixes = choose(_applied(record))
    files: list[Planned] = []
    wrong: list[str] = []
    found: set[str] = set()
    for name in sorted({*record, *(name for fix in [*known, *fixes] for name in fix.edits)}):
        needed = name in record or any(name in fix.edits for fix in fixes)
        package, inside = _placed(name, packages)
        path = package.folder / inside
        try:
            current = path.read_bytes()
            found.add(digest(current))
            original = _original(path, current, package, record.get(name), store)
            if needed:
                if path.is_symlink():
                    raise PlaceError(
                        f"is a symbolic link to {path.readlink()}: put a copy in its place (cp --remove-destination), "
                        "then run this again"
                    )
                wanted, applied = _edited(name, original, fixes)
                files.append(Planned(name, package, path, original, current, wanted, applied))
        except FileNotFoundError:
            wrong += [f"{path}: does not exist"] if needed else []
        except OSError as error:
            raise StorageError(f"{path}: can not be read: {(error.strerror or str(error)).lower()}") from None
        except (PlaceError, UnicodeDecodeError, _ChangedError) as error:
            wrong.append(f"{path}: {error}")
    if not record and not wrong and store.kept() - found:
        wrong.append(f"{store.originals}: holds originals of files that there is no record of: keep or remove them")
    if wrong:
        raise MismatchError(*wrong)
    return Plan(list(fixes), files, record)


def settle(choose: Choice, known: Sequence[Fix], packages: dict[str, Package], store: Store) -> Plan:
    """Plan, and carry the plan out if there is anything to do.  Returns the plan; its ``changes`` are what was written.

    Raises :class:`MismatchError` before anything is written; :class:`StorageError` when writing fails, and then what was written
    is whole and another run goes on from there.
    """
    try:
        planned = steady_plan(choose, known, packages, store)
        left = store.leftovers(planned.folders)
        if planned.settled and store.exists == bool(planned.record) and not left:
            return planned
    except (MismatchError, StorageError):
        if not store.exists:  # nobody ever wrote here, so nobody is just writing
            raise
    with store.locked():
        planned = plan(choose, known, packages, store)
        store.sweep(planned.folders)
        _carry_out(planned, store)
    return planned


def steady_plan(choose: Choice, known: Sequence[Fix], packages: dict[str, Package], store: Store) -> Plan:
    """A plan made without the lock: a run that is just writing may show us a file and not its record, so look again."""
    for _ in range(3):
        try:
            return plan(choose, known, packages, store)
        except (MismatchError, StorageError):
            time.sleep(0.2)
    return plan(choose, known, packages, store)


def _carry_out(planned: Plan, store: Store) -> None:
    """Only under the lock, with a plan made under it."""
    final = planned.final_record
    # Until every file is written, the record accepts what it was before as well.
    meanwhile = {
        name: replace(entry, patched=list(dict.fromkeys([*entry.patched, *_before(planned, name)])))
        for name, entry in final.items()
    }
    meanwhile = {**planned.record, **meanwhile}
    staged: dict[str, Path] = {}
    try:
        try:
            for file in planned.changes:
                staged[file.name] = stage(file.path, file.wanted)
            store.keep(file.original for file in planned.files if file.name in final)
            if meanwhile != planned.record:
                store.write_record(meanwhile)
        except BaseException:
            if not planned.record and not store.file.exists():  # no file was replaced, then or ever
                with contextlib.suppress(StorageError):
                    store.forget()
            raise
        for file in planned.files:
            if file.name in staged:
                put(staged[file.name], file.path)
            drop_stale_bytecode(file.path, file.wanted)
    finally:
        discard(staged.values())
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


def _placed(name: str, packages: dict[str, Package]) -> tuple[Package, str]:
    """The package of a file, and the file's name in it."""
    package, _, inside = name.partition("/")
    if package not in packages:
        raise MismatchError(f"{name}: {package} is no package of the profile")
    return packages[package], inside


def _original(path: Path, current: bytes, package: Package, entry: Recorded | None, store: Store) -> bytes:
    marked = MARK.encode() in current
    if entry is None:
        if marked:
            kept = f"; what it was may lie in {store.originals}" if store.kept() else ""
            raise _ChangedError(
                f"carries fixes of this pack, and there is no record of it: reinstall the package, then run this again{kept}"
            )
        return current
    if digest(current) == entry.original:
        return current
    if digest(current) in entry.patched:
        return store.original(entry.original, path)
    if not marked and entry.package not in ("", package.build):  # installed since
        return current
    raise _ChangedError(
        f"was changed since {', '.join(entry.fixes)} came in: reinstall the package, or put back "
        f"{store.originals / entry.original}, then run this again (the record is {store.file})"
    )


def _edited(name: str, original: bytes, fixes: Sequence[Fix]) -> tuple[bytes, list[str]]:
    text = original.decode("utf-8")
    applied = []
    for fix in fixes:
        if edit := fix.edits.get(name):
            try:
                module = Module(text, fix.name)
                edit(module)
                text = module.result()
                parsed(text.removeprefix(BYTE_ORDER_MARK))
            except PlaceError as error:
                raise PlaceError(f"{fix.name}: {error}") from None
            applied.append(fix.name)
    return text.encode("utf-8"), applied
