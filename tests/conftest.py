"""Fixtures of all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from checkpoints import copy, goal, source  # noqa: F401 - fixtures
from fixtrees import Tree, run, stand_in
from support import MINIMAL, Repository, Shell

settings.register_profile(
    "cookbook",
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("cookbook")


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    """A repository with one other recipe in it, ``acme/Other``."""
    repository = Repository(tmp_path / "repository")
    repository.recipe(MINIMAL, identity="acme/Other")
    return repository


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A bash with stand-ins for the programs of launch blocks."""
    return Shell.at(tmp_path)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Packages as an image holds them, without the fixes."""
    return stand_in(tmp_path / "site")


@pytest.fixture(scope="session")
def patched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What every file of ``tree`` shall be."""
    made = stand_in(tmp_path_factory.mktemp("patched"))
    assert run(made) == 0
    return made.contents()
