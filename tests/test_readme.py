"""What the README says works."""

import re
from pathlib import Path

from balancesim.cli import run
from tests.scenario_files import write

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_policy_of_the_readme_runs(tmp_path, monkeypatch):
    """The example, copied from the README, is twenty lines and decides a scenario from its own file."""
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL).group(1)
    body = code[code.index("class ") :].strip().splitlines()
    assert len(body) <= 20
    (tmp_path / "my_policy.py").write_text(code, encoding="utf-8")
    path = write(tmp_path)
    monkeypatch.chdir(tmp_path)
    arguments = ["--policy", "sd_only", "--policy", "my_policy.py:ShortestFirst", "--out", "mine"]
    assert run(["compare", str(path), *arguments]) == 0
    tables = list((tmp_path / "mine").rglob("policy=ShortestFirst/replication=*/part-0.parquet"))
    assert len(tables) == 3 * 2


def test_the_commands_of_the_readme_exist():
    """Every make target and every file that the README names is there."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE) or target in ("git",), target
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / link).exists(), link
    for name in re.findall(r"NAME=(\w+)", README):
        assert (ROOT / "scenarios" / f"{name}.toml").exists() or name == "NAME"
