"""Programs of the book's chapter on Python, and its manifests for Kubernetes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COMMAND, HANG, environment

CHAPTER = Path(__file__).parents[3] / "docs/book/src/python.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", CHAPTER.read_text(), flags=re.DOTALL)


def test_chapter_has_programs():
    assert len(PROGRAMS) == 8


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_program_runs_on_one_node_and_on_two(program, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(program)
    commands = [[sys.executable, str(path)]]
    if "oikaze.local" not in program:
        commands.append([COMMAND, "run", "-n", "2", "--", sys.executable, str(path)])
    for command in commands:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=HANG,
            env=environment(OIKAZE_COMMAND=COMMAND),
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_rows_of_the_table_stand_in_the_program():
    rows = re.findall(r"^\| `.*? \| (`.*`) \|$", CHAPTER.read_text(), flags=re.MULTILINE)
    calls = [call for row in rows for call in re.findall(r"`([^`]*)`", row)]
    assert len(rows) > 30
    missing = [call for call in calls if call not in PROGRAMS[-1]]
    assert not missing


@pytest.mark.long
def test_manifests_match_the_schemas_of_kubernetes():
    import kubernetes_validate
    import yaml

    chapter = CHAPTER.with_name("launchers.md").read_text()
    manifests = [
        manifest
        for text in re.findall(r"```yaml\n(.*?)```", chapter, flags=re.DOTALL)
        for manifest in yaml.safe_load_all(text)
    ]
    assert [one["kind"] for one in manifests] == ["Service", "Job", "NetworkPolicy"]
    for manifest in manifests:
        kubernetes_validate.validate(manifest, "1.37", strict=True)
    service, job, policy = manifests
    # One name ties the three together.
    pod = job["spec"]["template"]
    assert pod["spec"]["subdomain"] == service["metadata"]["name"]
    for selector in service["spec"]["selector"], policy["spec"]["podSelector"]["matchLabels"]:
        assert selector.items() <= pod["metadata"]["labels"].items()
    variables = {one["name"]: one for one in pod["spec"]["containers"][0]["env"]}
    assert variables["OIKAZE_SIZE"]["value"] == str(job["spec"]["completions"])
    assert job["spec"]["parallelism"] == job["spec"]["completions"]
