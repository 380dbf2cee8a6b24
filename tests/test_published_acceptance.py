"""Published acceptance values as rates of requests, picked by a trace's task."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancesim import catalog
from balancesim.acceptance_rates import PublishedAcceptanceRate
from balancesim.acceptance_rates.published import rate_of_tokens
from balancesim.core.speculation import expected_tokens_per_round
from balancesim.lengths.sizes import Sizes
from balancesim.scenario import load
from tests.scenario_files import TINY, write

EAGLE = {"draft": "EAGLE", "target": "Llama-3.1-8B"}


def sizes(*tasks):
    ones = np.ones(len(tasks), dtype=np.int64)
    return Sizes(ones, ones, np.array(tasks, dtype=object))


def test_a_published_rate_is_taken_as_it_is():
    """Leviathan et al. (arXiv 2211.17192), Table 2: T5-small on T5-XXL, EnDe, temperature 0 and 1."""
    assert catalog.published_rate("T5-small", "T5-XXL", "EnDe", 7, 0.0) == 0.75
    assert catalog.published_rate("T5-small", "T5-XXL", "EnDe", 7, 1.0) == 0.62


def test_tokens_a_round_become_a_rate():
    """EAGLE on GSM8K: 1.700 tokens at γ = 1 are 1 + α; 2.399 at γ = 3 are 1 + α + α² + α³; to 9 the nearest is 10."""
    assert catalog.published_rate(**EAGLE, task="GSM8K", draft_length=1) == pytest.approx(0.7)
    alpha = catalog.published_rate(**EAGLE, task="GSM8K", draft_length=3)
    assert 1 + alpha + alpha**2 + alpha**3 == pytest.approx(2.399)
    at_ten = catalog.published_rate(**EAGLE, task="GSM8K", draft_length=9)
    assert expected_tokens_per_round(at_ten, 10) == pytest.approx(2.810)


def test_without_a_draft_length_the_drafts_never_end():
    """Spec-Bench, Vicuna-68M on Vicuna-7B: 2.28 tokens a step, a chain of unknown length: 1 − 1/2.28."""
    rate = catalog.published_rate("Vicuna-68M", "Vicuna-7B", "Spec-Bench", 5)
    assert rate == pytest.approx(1 - 1 / 2.28)


@given(st.floats(0, 1), st.integers(1, 12))
def test_the_inverse_of_the_tokens_a_round(rate, draft_length):
    """α → E → α, within what 1e-12 of E leaves."""
    tokens = float(expected_tokens_per_round(rate, draft_length))
    assert expected_tokens_per_round(rate_of_tokens(tokens, draft_length), draft_length) == pytest.approx(tokens)


def test_trees_have_no_rate():
    """The i.i.d. formulas hold for a chain; all chains and n-grams of the table give a rate between 0 and 1."""
    for record in catalog.acceptance_records():
        if record.method == "tree":
            assert math.isnan(record.rate)
        else:
            assert 0 < record.rate < 1


def test_the_trace_picks_the_rate_by_its_task():
    """Tasks are renamed by the table; what is not listed, and requests without a task, take the default."""
    law = PublishedAcceptanceRate(**EAGLE, draft_length=1, tasks={"maths": "GSM8K", "default": "ShareGPT"})
    rng = np.random.default_rng(1)
    assert law.draw(rng, sizes("maths", "", "chat")).tolist() == pytest.approx([0.7, 0.661, 0.661])
    one = np.ones(2, dtype=np.int64)
    assert law.draw(rng, Sizes(one, one, None)).tolist() == pytest.approx([0.661, 0.661])
    only = PublishedAcceptanceRate(**EAGLE, draft_length=1, tasks={"maths": "GSM8K"})
    with pytest.raises(ValueError, match=r"acceptance_rate.tasks has no entry for task 'chat'"):
        only.draw(rng, sizes("chat"))


def test_a_spread_keeps_the_published_mean():
    """cv 0.12, as measured over requests on GSM8K (docs/facts.md §9): mean and CV of 20,000 draws."""
    law = PublishedAcceptanceRate(**EAGLE, draft_length=1, tasks={"default": "GSM8K"}, cv=0.12)
    drawn = law.draw(np.random.default_rng(3), sizes(*[""] * 20_000))
    assert drawn.mean() == pytest.approx(0.7, abs=5 * 0.084 / math.sqrt(20_000))
    assert drawn.std() / drawn.mean() == pytest.approx(0.12, rel=0.05)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"draft": "EAGEL"}, "no published acceptance for draft/target 'EAGEL/Llama-3.1-8B' .*EAGLE/Llama-3.1-8B"),
        ({"tasks": {"default": "GSM9K"}}, "task of EAGLE/Llama-3.1-8B 'GSM9K' .*GSM8K"),
        ({"temperature": 0.5}, r"at temperature 0.5 'GSM8K' \(there are: none\)"),
        ({"tasks": {}}, "tasks must have at least one entry"),
        ({"draft_length": 0}, "draft_length must be at least 1, got 0"),
        ({"cv": -1.0}, "cv must be"),
    ],
)
def test_bad_options_are_refused_in_one_line(changed, message):
    """Unknown names list what there is."""
    options = {**EAGLE, "draft_length": 3, "tasks": {"default": "GSM8K"}}
    with pytest.raises(ValueError, match=message) as caught:
        PublishedAcceptanceRate(**(options | changed))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("tokens", "draft_length"), [(0.9, 3), (4.1, 3), (math.nan, 3), (0.5, None)])
def test_impossible_tokens_a_round_are_refused(tokens, draft_length):
    """Fewer than 1 or more than γ + 1 tokens a round."""
    with pytest.raises(ValueError, match="tokens_per_round must be at least 1"):
        rate_of_tokens(tokens, draft_length)


def test_a_scenario_can_name_it(tmp_path):
    """The TOML form, as docs/scenarios.md shows it."""
    given_rate = 'acceptance_rate = {kind = "fixed", acceptance_rate = 0.8}'
    assert given_rate in TINY
    text = TINY.replace(
        given_rate,
        'acceptance_rate = {kind = "published", draft = "EAGLE", target = "Llama-3.1-8B", draft_length = 3, '
        'tasks = {default = "ShareGPT"}, cv = 0.2}',
    )
    rates = load(write(tmp_path, text)).workload.acceptance_rate
    assert isinstance(rates, PublishedAcceptanceRate)
