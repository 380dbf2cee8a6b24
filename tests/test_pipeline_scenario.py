"""Scenarios with small base stations: their keys, the graph, the policies' disciplines, and whole runs."""

import math
from collections import defaultdict

import pytest

from balancesim import topology
from balancesim.cli.check import check_scenario
from balancesim.core.pipeline_lanes import PipelineLanes
from balancesim.core.request import Outcome, RejectReason
from balancesim.recorder import MemoryRecorder
from balancesim.scenario import ScenarioError, from_document, load
from balancesim.simulate import run_world
from balancesim.streams import Streams
from tests.scenario_files import TINY, write
from tests.test_simulate import check_invariants

LAW = '{kind = "roofline", launch_s = 0.0005, bandwidth_efficiency = 0.8, compute_efficiency = 0.7}'
HETNET = (
    TINY.replace('discipline = "continuous"', 'discipline = "pipeline"')
    .replace('policies = ["balance", "ad_only", "sd_only"]', 'policies = ["pipelined_sd"]')
    .replace('sharing = "per_request"', 'sharing = "shared"')
    + f"""
[sbs]
gpu = "RTX 3080 Laptop 16GB"
utilisation = 0.9
reserve_gib = 1
law = {LAW}
[fronthaul]
rate_gbps = 10
delay_ms = 0.5
token_bits = 32
distribution_bits = 0
"""
)


def hetnet(folder, *overrides):
    return load(write(folder, HETNET), overrides)


def complaints(folder, *overrides, text=HETNET):
    with pytest.raises(ScenarioError) as caught:
        load(write(folder, text), overrides)
    return [line.partition(": ")[2] for line in caught.value.lines]


def run(scenario, label=None):
    """Run replication 0 and check what must hold in every run."""
    recorder = MemoryRecorder()
    result = run_world(scenario, label or scenario.policies[0].label, 0, recorder)
    check_invariants(scenario, result, recorder)
    return result, recorder


def test_the_graph(tmp_path):
    """Every cell's site has an SBS; a fronthaul edge with rate, delay and payload joins it to its MBS."""
    scenario = hetnet(tmp_path, "network.servers=one", "fronthaul.distribution_bits=1000")
    built = topology.build(scenario.network, Streams(1, 0))
    assert sorted(node for node in built.graph if node[0] in ("sbs", "server")) == [
        ("sbs", 0), ("sbs", 1), ("server", 0),
    ]  # fmt: skip
    edge = built.graph.edges[("sbs", 1), ("server", 0)]
    assert (edge["kind"], edge["rate_bps"], edge["delay_s"]) == ("fronthaul", 10e9, 0.0005)
    assert (edge["draft_token_bits"], edge["verified_token_bits"]) == (1032.0, 32.0)
    assert built.graph.edges[("cell", 1), ("sbs", 1)]["kind"] == "site"
    assert built.cell_fronthaul == (scenario.servers[0].sbs.fronthaul,) * 2
    assert built.cell_server.tolist() == [0, 0]


def test_no_sbs_no_fronthaul_in_the_graph(tmp_path):
    """Without [sbs] the graph is as before."""
    built = topology.build(load(write(tmp_path)).network, Streams(1, 0))
    assert built.cell_fronthaul == ()
    assert {node[0] for node in built.graph} == {"cell", "server", "user"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["run.policies=[\"balance\"]"],
         "policy.balance: discipline must be another for this policy, got pipeline; give it its own, "
         'discipline = "…" (policy balance)'),
        (['scheduling.discipline=static'],
         "policy.pipelined_sd: discipline must be pipeline for this policy, got static; give it its own, "
         'discipline = "…" (policy pipelined_sd)'),
        (['run.policies=[{kind="balance", discipline="statik"}]'],
         "run.policies.0.discipline.kind: unknown discipline 'statik'; did you mean static?"),
        (["sbs.gpu=Jetson Orin Nano 8GB", "server.draft=Llama-2-7B"],
         "sbs.gpu: weights of Llama-2-7B exceed the usable memory of Jetson Orin Nano 8GB by 6.35 GiB"),
        (["server.unlimited_memory=true", 'run.policies=[{kind="balance", discipline="static"}]'],
         "server.unlimited_memory: must be false under the discipline static, got true (policy balance)"),
        (["fronthaul.rate_gbps=0"], "fronthaul.rate_gbps: must be greater than 0, got 0"),
        (["fronthaul.delay=1"], "fronthaul.delay: unknown key; did you mean delay_ms?"),
    ],
)  # fmt: skip
def test_faults(tmp_path, overrides, message):
    """Each fault is one clear line."""
    assert any(line.startswith(message) for line in complaints(tmp_path, *overrides)), complaints(tmp_path, *overrides)


def test_missing_sections(tmp_path):
    """The discipline needs an SBS, the SBS its fronthaul and a draft model."""
    without, _, fronthaul = HETNET.partition("[sbs]")
    assert complaints(tmp_path, text=without) == [
        "sbs: is missing: the discipline pipeline drafts at small base stations; add [sbs] and [fronthaul] "
        "(policy pipelined_sd)"
    ]
    table = "[fronthaul]" + fronthaul.partition("[fronthaul]")[2]
    assert "sbs: is missing: an SBS and its fronthaul come together" in complaints(tmp_path, text=without + table)
    no_link = HETNET.partition("[fronthaul]")[0]
    assert "fronthaul: is missing: an SBS and its fronthaul come together" in complaints(tmp_path, text=no_link)
    lines = [line for line in HETNET.splitlines() if not line.startswith("draft")]
    assert "server.draft: is missing: the SBS of [sbs] runs it" in complaints(tmp_path, text="\n".join(lines))


def test_a_policy_with_a_discipline_of_its_own(tmp_path):
    """BALANCE runs on the MBS alone in a scenario of the pipeline, and results tell the options apart."""
    policies = 'run.policies=["pipelined_sd", {kind="balance", label="on_mbs", discipline="static"}]'
    scenario = hetnet(tmp_path, policies)
    assert scenario.lane_model("pipelined_sd") == PipelineLanes()
    assert scenario.lane_model("on_mbs").name == "static"
    assert scenario.policy("on_mbs").options == {"discipline": "static"}
    again = from_document(scenario.document, "again", tmp_path)
    assert again.lane_model("on_mbs").name == "static"
    for label, servers in (("pipelined_sd", 4), ("on_mbs", 2)):
        result, recorder = run(scenario, label)
        assert result.summary.servers == servers  # GPUs: an SBS and an MBS a cell, or the MBS alone
        assert {row.server_id for row in recorder.requests} == {0, 1}


OPTIONS = [
    "{}", '{batching="exact"}', '{batching="none"}', '{batching="static"}', '{batching="maximum"}',
    '{batching="heuristic"}', "{pipelined=false}", "{pipelined=false, draft_length=0}", "{draft_length=7}",
    '{bandwidth="uniform"}', "{batches_inside=2}", "{deadlines=true}", "{max_draft_length=0}", "{by_rate=false}",
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS)
def test_every_option_runs(tmp_path, options):
    """Conservation, order of times, memory: what holds in every run holds under every option."""
    _, recorder = run(hetnet(tmp_path, f"policy.pipelined_sd={options}", "run.horizon_s=6"))
    assert sum(row.outcome is Outcome.COMPLETED for row in recorder.requests) > 0
    drafted = {row.draft_length for row in recorder.requests if row.draft_length is not None}
    assert drafted == {0} if "length=0" in options else 0 not in drafted


@pytest.mark.parametrize(
    "overrides",
    [
        ["network.servers=one"],
        ["network.servers=one", "fronthaul.queueing=true", "fronthaul.rate_gbps=0.001"],
        ["scheduling.upload=on_arrival"],
        ["scheduling.abort_late=true", "requests.deadline.deadline_s=1"],
        ["requests.prediction={kind=\"noisy\", length_cv=0.5, acceptance_cv=0.3}"],
        ["server.acceptance=expected", "scheduling.discipline={kind=\"pipeline\", early_exit=false}"],
        ["radio.downlink.delivery=streamed"],
        ["scheduling.epoch_mode=on_event", "--epoch"],
        ["server.target=Llama-2-13B", "server.unlimited_memory=true"],
    ],
)  # fmt: skip
def test_every_world_runs(tmp_path, overrides):
    """Shared MBS and fronthaul, uploads first, aborts, wrong predictions, padded rounds, streaming, 13B on 24 GB."""
    text = HETNET.replace("epoch_ms = 100\n", "") if "--epoch" in overrides else HETNET
    overrides = [o for o in overrides if o != "--epoch"]
    _, recorder = run(load(write(tmp_path, text), [*overrides, "run.horizon_s=6"]))
    assert len(recorder.requests) > 5


@pytest.mark.parametrize("overrides", [[], ["server.unlimited_memory=true", "fronthaul.delay_ms=inf"]])
def test_check_shows_the_sbs(tmp_path, capsys, overrides):
    """`balancesim check` shows the SBS and its fronthaul; without a limit of memory there is no capacity."""
    check_scenario(str(write(tmp_path, HETNET)), overrides)
    shown = capsys.readouterr().out
    assert "SBS       RTX 3080 Laptop 16GB at every cell" in shown
    assert ("fronthaul down" if overrides else "fronthaul 10 Gbit/s, 0.5 ms, 32 bits a draft, 32 a verdict") in shown
    assert ("not estimated" in shown) == bool(overrides)


def test_the_fronthaul_is_down(tmp_path):
    """The MBS decodes alone."""
    _, recorder = run(hetnet(tmp_path, "fronthaul.delay_ms=inf", "run.horizon_s=6"))
    assert {row.draft_length for row in recorder.requests if row.admitted_s is not None} == {0}


def test_nothing_arrives_in_the_window(tmp_path):
    """A run without requests ends at once."""
    scenario = hetnet(tmp_path, 'requests.arrivals={kind="poisson", rate_hz=1e-9}')
    result, recorder = run(scenario)
    assert (result.summary.offered, recorder.requests, recorder.epochs) == (0, [], [])


def test_too_long_for_the_sbs(tmp_path):
    """A request whose cache exceeds the SBS's memory is rejected by the policy; on the MBS alone it is served."""
    small = ["sbs.utilisation=0.2", "sbs.reserve_gib=1.149", "run.horizon_s=4"]
    for options, outcome in (("{}", Outcome.REJECTED), ("{draft_length=0}", Outcome.COMPLETED)):
        scenario = hetnet(tmp_path, *small, f"policy.pipelined_sd={options}")
        room = scenario.servers[0].sbs.node.kv_room_tokens()
        assert 0 < room < 120  # prompt and answer have 100 + 20 tokens
        _, recorder = run(scenario)
        assert outcome in {row.outcome for row in recorder.requests}
        rejected = {row.reject_reason for row in recorder.requests if row.outcome is Outcome.REJECTED}
        assert rejected == ({RejectReason.POLICY} if options == "{}" else set())


@pytest.mark.parametrize("bandwidth", ["optimal", "uniform"])
def test_uploads_of_a_plan(tmp_path, bandwidth):
    """With the optimal bandwidths all uploads of a decision end together; uniform ones take as long as the slowest."""
    scenario = hetnet(
        tmp_path,
        f"policy.pipelined_sd.bandwidth={bandwidth}",
        'requests.arrivals={kind="at_once", users=8}',
        "requests.payload_kilobytes=200",
        'requests.lengths={kind="uniform", prompt_min=10, prompt_max=500, output_min=5, output_max=20}',
        'radio.channel={kind="log_distance", reference_loss_db=15.3, exponent=3.76}',
        "network.cells=1",
        "run.warmup_s=0",
        "requests.deadline.deadline_s=60",
    )
    _, recorder = run(scenario)
    ends = defaultdict(list)
    for row in recorder.requests:
        assert math.isfinite(row.upload_end_s)
        ends[row.admitted_s].append(row.upload_end_s - row.upload_start_s)
    together = max(ends.values(), key=len)
    assert len(together) == 8
    spread = max(together) / min(together)
    assert spread == pytest.approx(1.0, rel=1e-9) if bandwidth == "optimal" else spread > 1.05


def test_the_same_seed_gives_the_same_rows(tmp_path):
    """Two runs are equal row by row, and every policy meets the same requests."""
    policies = 'run.policies=["pipelined_sd", {kind="pipelined_sd", label="alone", batching="none"}]'
    scenario = hetnet(tmp_path, policies, "run.horizon_s=6", "radio.fading=rayleigh")
    first, again, other = (run(scenario, label)[1] for label in ("pipelined_sd", "pipelined_sd", "alone"))
    for table in ("requests", "epochs", "gpu_spans"):
        assert getattr(first, table) == getattr(again, table)
    offered = [
        sorted((row.request_id, row.user_id, row.arrival_s, row.prompt_tokens, row.acceptance_rate) for row in rows)
        for rows in (first.requests, other.requests)
    ]
    assert offered[0] == offered[1]
