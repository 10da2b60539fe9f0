"""Runs programs of tests as the nodes of a job, with the wheel that is installed here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

#: The command, which `cargo xtask python` names.
COMMAND = os.environ.get("OIKAZE_COMMAND", "oikaze")
#: Time in seconds after which a job hangs. Most take less than two.
HANG = 120


@dataclass
class Finished:
    """A job that has ended."""

    status: int
    out: str
    err: str

    def lines(self) -> list[str]:
        """Returns the lines of the output, in alphabetical order: nodes print in any order."""
        return sorted(re.sub(r"^\[\d+\] ", "", line) for line in self.out.splitlines())


def environment(**more: str) -> dict[str, str]:
    """Returns the environment of a test, without settings of jobs that run around it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OIKAZE_")}
    return {**kept, **more}


def finished(command: list[str], where: Path, succeeds: bool, more: dict[str, str]) -> Finished:
    """Runs a command in a folder, with more variables. Checks that it succeeds if it is to."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=HANG,
        env=environment(**more),
        cwd=where,
        check=False,
    )
    if succeeds:
        assert done.returncode == 0, done.stdout + done.stderr
    return Finished(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Finished]:
    """Returns a function that runs a program on some nodes: ``run(2, source)``."""

    def run(nodes: int, source: str, *options: str, succeeds: bool = True, **more: str) -> Finished:
        program = tmp_path / "program.py"
        program.write_text("import oikaze\n" + textwrap.dedent(source))
        command = [COMMAND, "run", *options, "-n", str(nodes), "--"]
        return finished([*command, sys.executable, str(program)], tmp_path, succeeds, more)

    return run


@pytest.fixture
def alone(tmp_path: Path) -> Callable[..., Finished]:
    """Returns a function that runs a program as a job of one node: ``alone(source)``."""

    def alone(source: str, *, succeeds: bool = True, **more: str) -> Finished:
        program = "import oikaze\n" + textwrap.dedent(source)
        return finished([sys.executable, "-c", program], tmp_path, succeeds, more)

    return alone
