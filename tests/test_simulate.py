"""One run from top to bottom: what must hold in every world, under every discipline."""

import hashlib
import os
import subprocess
import sys
from itertools import product

import numpy as np
import pytest

from balancesim.core.request import Outcome
from balancesim.recorder import MemoryRecorder
from balancesim.scenario import load
from balancesim.simulate import run_world
from tests.scenario_files import TINY, changed, write

#: heavier than the tiny scenario: a queue builds, lengths and acceptance rates differ
BUSY = (
    "requests.arrivals.rate_hz=14.0",
    'requests.lengths={kind="uniform", prompt_min=20, prompt_max=900, output_min=1, output_max=120}',
    'requests.deadline={kind="uniform", min_s=0.3, max_s=6.0}',
    'requests.acceptance_rate={kind="uniform", min=0.5, max=0.95}',
    "radio.fading=rayleigh",
)


def run(folder, policy, *overrides, replication=0, without=()):
    """Run the tiny scenario with overrides, ``without`` the lines that begin with these keys."""
    if any("on_event" in override for override in overrides):
        without = (*without, "epoch_ms")
    text = "\n".join(line for line in TINY.splitlines() if not line.startswith(tuple(without)))
    scenario = load(write(folder, text if without else TINY), overrides)
    recorder = MemoryRecorder()
    result = run_world(scenario, policy, replication, recorder)
    return scenario, result, recorder


def check_invariants(scenario, result, recorder):
    requests, epochs, spans = recorder.requests, recorder.epochs, recorder.gpu_spans
    assert len(requests) == result.summary.offered == sum(result.outcomes.values())
    assert [row.request_id for row in sorted(requests)] == list(range(len(requests)))
    for row in epochs:
        assert row.kv_used_bytes <= row.kv_peak_bytes <= row.kv_capacity_bytes * (1 + 1e-9)
        assert row.candidates >= row.admitted + row.rejected
    assert {span.server_id for span in spans} <= set(range(result.summary.servers))
    for server_id in range(result.summary.servers):
        mine = [span for span in spans if span.server_id == server_id]
        busy = sum(s.prefill_s + s.decode_s + s.draft_s + s.verify_s + s.switch_s for s in mine)
        assert busy <= max([s.end_s for s in mine], default=0.0) * (1 + 1e-9)
    for row in requests:
        if row.outcome is Outcome.COMPLETED:
            assert row.tokens_out == row.output_tokens
            assert not row.truncated
            assert row.user_last_token_s <= row.arrival_s + row.deadline_s
        times = [row.arrival_s, row.admitted_s, row.prefill_start_s, row.server_first_token_s]
        times += [row.server_last_token_s, row.user_last_token_s]
        known = [time for time in times if time is not None]
        assert known == sorted(known)
    emitted = sum(row.tokens_out for row in requests if row.server_last_token_s is not None)
    assert sum(span.tokens for span in spans) >= emitted


@pytest.mark.parametrize(
    ("discipline", "epochs", "upload"),
    list(product(("static", "continuous"), ("periodic", "on_event"), ("on_admission", "on_arrival"))),
)
@pytest.mark.parametrize("policy", ["balance", "sd_only"])
def test_conservation_everywhere(tmp_path, policy, discipline, epochs, upload):
    """Every request has one outcome, memory holds, the GPU is not used twice, tokens come out as asked."""
    settings = (
        f"scheduling.discipline={discipline}",
        f"scheduling.epoch_mode={epochs}",
        f"scheduling.upload={upload}",
        "scheduling.abort_late=true" if discipline == "continuous" else "scheduling.abort_late=false",
    )
    scenario, result, recorder = run(tmp_path, policy, *BUSY, *settings)
    check_invariants(scenario, result, recorder)
    assert result.outcomes.get(Outcome.COMPLETED, 0) > 0
    assert result.outcomes.get(Outcome.EXPIRED, 0) > 0


def test_streamed_answers_reach_the_user_token_by_token(tmp_path):
    """With streaming the first token is at the user long before the last, and never before the server has it."""
    _, _, recorder = run(tmp_path, "ad_only", "radio.downlink.delivery=streamed", "radio.downlink.sharing=shared")
    answered = [row for row in recorder.requests if row.outcome is Outcome.COMPLETED]
    assert answered
    for row in answered:
        assert row.server_first_token_s < row.user_first_token_s < row.user_last_token_s
        assert row.user_first_token_s < row.server_last_token_s


def test_all_policies_meet_the_same_world(tmp_path):
    """Arrivals, users, sizes, deadlines, payloads are equal, and so is the channel of a user in a block."""
    worlds = {}
    for policy in ("balance", "ad_only", "sd_only"):
        _, _, recorder = run(tmp_path, policy, *BUSY, "scheduling.upload=on_arrival")
        rows = sorted(recorder.requests)
        worlds[policy] = [
            (
                *(r.request_id, r.user_id, r.cell_id, r.arrival_s, r.prompt_tokens, r.output_tokens, r.deadline_s),
                *(r.acceptance_rate, r.payload_bits, r.upload_start_s, r.upload_end_s, r.uplink_sinr),
            )
            for r in rows
        ]
    assert worlds["balance"] == worlds["ad_only"] == worlds["sd_only"]


def test_the_clairvoyant_is_told_the_truth_of_the_same_world(tmp_path):
    """With noisy predictions others decide on what is wrong, the clairvoyant on the truth; the world is the same."""
    noise = 'requests.prediction={kind="noisy", length_cv=0.5, acceptance_cv=0.05}'
    rows = {}
    for policy in ("optimal", "clairvoyant"):
        settings = (*BUSY, noise, "scheduling.discipline=static", f'run.policies=["{policy}"]')
        rows[policy] = sorted(run(tmp_path, policy, *settings)[2].requests)
    truth = {name: [(r.output_tokens, r.acceptance_rate) for r in found] for name, found in rows.items()}
    told = {
        name: [(r.predicted_output_tokens, r.predicted_acceptance_rate) for r in found] for name, found in rows.items()
    }
    assert truth["optimal"] == truth["clairvoyant"] == told["clairvoyant"]
    assert told["optimal"] != truth["optimal"]
    assert sum(r.outcome is Outcome.COMPLETED for r in rows["clairvoyant"]) > 0


def test_acceptance_luck_belongs_to_the_request(tmp_path):
    """A request takes the same rounds under every policy that speculates with the same draft length."""
    rounds = {}
    for policy in ("balance", "sd_only"):
        _, _, recorder = run(tmp_path, policy, *BUSY)
        rounds[policy] = {
            r.request_id: (r.draft_rounds, r.accepted_tokens)
            for r in recorder.requests
            if r.mode == "SD" and r.outcome is Outcome.COMPLETED
        }
    both = rounds["balance"].keys() & rounds["sd_only"].keys()
    assert len(both) > 10
    assert all(rounds["balance"][k] == rounds["sd_only"][k] for k in both)


def test_replications_differ_and_repeat(tmp_path):
    """Another replication is another world; the same one again is the same to the last bit, in one process, too."""
    first, again, other = (run(tmp_path, "balance", *BUSY, replication=r)[2] for r in (0, 0, 1))
    assert first.requests == again.requests
    assert first.epochs == again.epochs
    assert first.gpu_spans == again.gpu_spans
    assert [r.arrival_s for r in first.requests] != [r.arrival_s for r in other.requests]


def digests(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*.parquet"))
    }


def test_tables_are_the_same_bytes_in_any_process(tmp_path):
    """Two processes with other hash seeds and numbers of workers write the same bytes."""
    path = write(tmp_path, TINY.replace("horizon_s = 10", "horizon_s = 4"))
    found = []
    for hash_seed, workers in (("1", "1"), ("2", "2")):
        out = tmp_path / f"out{hash_seed}"
        command = [sys.executable, "-m", "balancesim", "run", str(path), "--out", str(out), "--workers", workers]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": hash_seed})
        found.append(digests(out))
    assert found[0] == found[1]
    assert len(found[0]) == 3 * 3 * 2


def test_requests_that_can_never_fit_are_rejected(tmp_path):
    """Longer than the model's context, or than the whole memory: rejected at once, with the reason."""
    long = 'requests.lengths={kind="fixed", prompt_tokens=4090, output_tokens=20}'
    _, result, recorder = run(tmp_path, "ad_only", long)
    assert {row.reject_reason for row in recorder.requests} == {"context_length"}
    assert result.outcomes == {Outcome.REJECTED: len(recorder.requests)}
    big = 'requests.lengths={kind="fixed", prompt_tokens=3000, output_tokens=20}'
    small = ("server.reserve_gib=8", 'run.policies=["ad_only"]')
    _, _, recorder = run(tmp_path, "ad_only", big, *small, without=("draft",))
    assert {row.reject_reason for row in recorder.requests} == {"kv_memory"}


def test_who_is_inside_at_the_end_is_unfinished(tmp_path):
    """A drain of 0 s leaves requests unfinished; they have no answer and are counted."""
    none = 'requests.deadline="none"'
    scenario, result, recorder = run(tmp_path, "ad_only", *BUSY, none, "run.drain_s=0.0")
    check_invariants(scenario, result, recorder)
    unfinished = [row for row in recorder.requests if row.outcome is Outcome.UNFINISHED]
    assert unfinished
    assert all(row.user_last_token_s is None for row in unfinished)


def test_several_cells_share_a_server(tmp_path):
    """With one server for all, both cells' requests are in the same epochs."""
    scenario, result, recorder = run(tmp_path, "balance", *BUSY, "network.servers=one")
    check_invariants(scenario, result, recorder)
    assert len(scenario.servers) == 1
    assert {row.cell_id for row in recorder.requests} == {0, 1}
    assert {row.server_id for row in recorder.requests} == {0}


def test_a_shared_uplink_in_outage_lets_requests_expire(tmp_path):
    """Nobody is reached: every upload runs out of time."""
    _, result, _ = run(
        tmp_path, "ad_only", "radio.uplink.sharing=shared", "radio.channel.loss_db=400", "radio.rate=cqi_table1"
    )
    assert set(result.outcomes) == {Outcome.EXPIRED}


def test_all_users_of_a_round_are_in_its_epoch(tmp_path):
    """Twenty requests at time 0 meet one decision with twenty candidates: the paper's study."""
    one = "network.servers=one"
    at_once = 'requests.arrivals={kind="at_once", users=20}'
    for mode in ("periodic", "on_event"):
        _, _, recorder = run(
            tmp_path, "ad_only", one, at_once, "scheduling.discipline=static", f"scheduling.epoch_mode={mode}"
        )
        assert min(recorder.epochs, key=lambda row: row.epoch).candidates == 20


def test_a_policy_that_never_admits_ends_the_run(tmp_path):
    """Without deadlines and with an endless drain, an idle server stops deciding instead of running for ever."""
    (tmp_path / "mine.py").write_text(
        "from balancesim.core.decision import Decision\n\n\n"
        "class Never:\n    def decide(self, problem):\n        return Decision()\n"
    )
    scenario = changed(tmp_path, 'requests.deadline="none"', f'run.policies=["{tmp_path}/mine.py:Never"]')
    result = run_world(scenario, "Never", 0, MemoryRecorder())
    assert set(result.outcomes) == {Outcome.UNFINISHED}


def test_predicted_completion_meets_the_measured_one(tmp_path):
    """Static, `expected` acceptance, no channel luck: a lane alone ends exactly when its policy predicted."""
    settings = (
        "scheduling.discipline=static",
        "server.acceptance=expected",
        "scheduling.slice_ms=0",
        "scheduling.switch_ms=0",
    )
    _, _, recorder = run(tmp_path, "sd_only", *settings)
    pairs = [(row.predicted_finish_s, row.measured_finish_s) for row in recorder.epochs if row.admitted]
    assert len(pairs) > 5
    predicted, measured = np.array(pairs).T
    np.testing.assert_allclose(measured, predicted, rtol=1e-9, atol=3e-3)  # the backhaul's 1 ms is in the uploads
