"""Slow test: the two-node study runs from constants to report."""

import json

import pandas as pd
import pytest

from analysis.reproduce.fit_pipeline import search
from analysis.reproduce.pipeline import main


@pytest.mark.slow
def test_quick_study_writes_every_statement_with_an_interval(tmp_path):
    """Two replications give a table with all statements of the paper, a report that shows them, and five figures."""
    main(["--quick", "--out", str(tmp_path)])
    table = pd.read_csv(tmp_path / "pipeline.csv")
    assert list(table.columns) == ["figure", "x", "quantity", "paper", "ours", "ci_low", "ci_high"]
    stated = table[table["paper"].notna()]
    assert sorted(set(stated["paper"])) == [19.6, 20.5, 21.4, 25.2, 29.3, 30.7, 31.6, 44.9]
    assert table[["ours", "ci_low", "ci_high"]].notna().all(axis=None)
    text = (tmp_path / "pipeline.md").read_text()
    for paper in set(stated["paper"]):
        assert f"| {paper} |" in text
    assert len(list(tmp_path.glob("pipeline_*.png"))) == 5


@pytest.mark.slow
def test_the_search_repeats_itself():
    """Two runs of a tiny search find the same constants."""
    one, two = (search(points=1, descent=1, report=lambda _: None) for _ in range(2))
    assert json.dumps(one.score_points) == json.dumps(two.score_points)
    assert one == two
