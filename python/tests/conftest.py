"""What several tests need."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

#: The root of the repository.
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture
def command() -> str:
    """The command `needless`, where there is one."""
    found = os.environ.get("NEEDLESS_COMMAND") or shutil.which("needless")
    if found is None:
        pytest.skip("the command needless is not there: NEEDLESS_COMMAND names it")
    return found
