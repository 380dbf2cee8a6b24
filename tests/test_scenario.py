"""Scenario files: what they mean in SI units, and that everything wrong with one is said at once."""

import json
import math
import tomllib
from pathlib import Path

import pytest

from balancesim.policies import Balance
from balancesim.scenario import ScenarioError, document, from_document, load
from balancesim.scenario.json_schema import scenario_schema
from balancesim.scenario.schema import ScenarioTable
from balancesim.scenario.settings import Area
from tests.scenario_files import TINY, changed, complaints, write

MY_POLICY = """
from dataclasses import dataclass
from balancesim.core.decision import Decision

@dataclass(frozen=True)
class Patient:
    patience_s: float = 1.0

    def decide(self, problem):
        return Decision()

class Broken:
    def decide(self, problem):
        return 1 / 0

class Narrow:
    smallest_gpu_share = 0.1

    def decide(self, problem):
        return Decision()

class Picky:
    def decide(self, problem):
        raise ValueError("patience is needed")

class Wrong:
    def decide(self, problem):
        return None
"""


def test_friendly_units_become_si(tmp_path) -> None:
    """Megahertz, milliseconds, dBm, kB and GiB are converted once; values by hand."""
    scenario = changed(tmp_path, "requests.payload_kilobytes=2", "server.draft_load_gb_s=32")
    assert scenario.radio.uplink.bandwidth_hz == 1e6
    assert scenario.radio.uplink.power_w == pytest.approx(0.19953, rel=1e-4)  # 10^(23/10) mW
    # -174 dBm/Hz + 5 dB = 10^-16.9 mW/Hz; over 1 MHz 1.2589e-14 W
    assert scenario.radio.uplink.noise_density_w_hz == pytest.approx(1.2589e-20, rel=1e-4)
    assert scenario.radio.uplink.snr_per_gain(1e6) == pytest.approx(0.19953 / 1.2589e-14, rel=1e-4)
    assert scenario.radio.coherence_s == 0.01
    assert scenario.network.backhaul_s == 0.001
    assert scenario.scheduling.epoch_s == 0.1
    assert (scenario.scheduling.slicing.slice_s, scenario.scheduling.slicing.switch_s) == (0.02, 1e-4)
    assert scenario.workload.payload.fixed_bits == 16_000.0  # 2 kB · 8000 bit
    spec = scenario.servers[0].spec
    assert spec.usable_memory_bytes == pytest.approx(0.9 * 24 * 2**30 - 2**30)
    assert spec.draft_load_bytes_s == 32e9


def test_power_density_and_fixed_noise_are_alternatives(tmp_path) -> None:
    """[P1] gives powers per hertz, [P2] a noise power whatever the bandwidth."""
    text = TINY.replace("power_dbm = 23\nnoise_figure_db = 5", "power_density_dbm_hz = -50\nnoise_dbm = -106")
    link = load(write(tmp_path, text)).radio.uplink
    assert link.snr_per_gain(2e6) == pytest.approx(1e-8 * 2e6 / 10**-13.6)  # -50 dBm/Hz = 1e-8 W/Hz


def test_defaults_are_choices_of_method(tmp_path) -> None:
    """What a scenario may leave out, and what it then means."""
    scenario = load(write(tmp_path, TINY.replace("warmup_s = 1\n", "").replace("replications = 2\n", "")))
    assert (scenario.run.warmup_s, scenario.run.drain_s) == (0.0, math.inf)
    assert (scenario.run.replications, scenario.run.seed) == (1, 1)
    assert scenario.workload.prediction.name == "exact"
    assert scenario.servers[0].acceptance.name == "iid"
    assert scenario.network.area is Area.HEXAGON
    assert scenario.scheduling.upload_on_admission
    assert not scenario.scheduling.abort_late


def test_every_physical_key_is_needed(tmp_path) -> None:
    """Each key without a default is an error when it is left out, and the message says what it is."""
    table = tomllib.loads(TINY)
    table["radio"]["uplink"].pop("bandwidth_mhz")
    table["server"].pop("reserve_gib")
    table["scheduling"].pop("epoch_ms")
    table.pop("network")
    with pytest.raises(ScenarioError) as caught:
        from_document(table, "tiny")
    lines = [line.partition(": is missing")[0] for line in caught.value.lines]
    expected = ["radio.uplink.bandwidth_mhz", "network", "server.reserve_gib", "scheduling.epoch_ms"]
    assert lines == [f"tiny.toml: {key}" for key in expected]


def test_servers_follow_the_cells(tmp_path) -> None:
    """One server a cell, one for all, or as listed; each has its entry."""
    assert changed(tmp_path).network.cell_server == (0, 1)
    assert len(changed(tmp_path).servers) == 2
    assert changed(tmp_path, "network.servers=one").network.cell_server == (0, 0)
    assert changed(tmp_path, "network.cells=3", "network.servers=[0, 1, 0]").network.cell_server == (0, 1, 0)


def test_positions_may_be_given(tmp_path) -> None:
    """Sites and users as pairs of metres take the place of the counts."""
    text = TINY.replace("cells = 2\n", "cell_positions_m = [[0, 0], [500, 0.5]]\n")
    text = text.replace("users_per_cell = 10\n", "user_positions_m = [[1, 2]]\n")
    network = load(write(tmp_path, text)).network
    assert network.cell_positions_m == ((0.0, 0.0), (500.0, 0.5))
    assert (network.cells, network.users) == (2, 1)


ALL_WRONG = (
    'run.horizon_s="20 s"',
    "run.seed=1.5",
    "radio.uplink.bandwidth_khz=3",
    "radio.channel.kind=fixt",
    "requests.arrivals.rate=3",
    "requests.deadline.deadline_s=-1",
    "server.gpu=RTX4090",
    "network.area=square",
    "network.servers=two",
    "scheduling.slice_ms=nan",
    "policy.blance.share_step=0.1",
    "foo=1",
)


def test_all_faults_are_reported_at_once(tmp_path) -> None:
    """A dozen faults of all kinds in one file give a dozen lines."""
    lines = complaints(tmp_path, *ALL_WRONG)
    for expected in (
        "run.horizon_s: must be a number, got '20 s'",
        "run.seed: must be a whole number, got 1.5",
        "radio.uplink.bandwidth_khz: unknown key; did you mean bandwidth_mhz?",
        "radio.channel.kind: unknown channel 'fixt'; did you mean fixed?",
        "requests.arrivals.rate: unknown option; did you mean rate_hz?",
        "requests.deadline.deadline_s: must be finite and positive, got -1.0",
        "server.gpu: unknown GPU 'RTX4090'; did you mean 'RTX 4090'?",
        "network.area: must be one of hexagon, disc, got 'square'",
        "network.servers: must be one of per_cell, one or must be a list, got 'two'",
        "scheduling.slice_ms: must be a finite number, got nan",
        "policy.blance: no policy of this name or label; did you mean balance?",
        "foo: unknown key",
    ):
        assert [line for line in lines if line.startswith(expected)], expected
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("run.horizon_s=0", "run.horizon_s: must be greater than 0, got 0"),
        ("run.horizon_s=inf", "run.horizon_s: must be a finite number, got inf"),
        ("run.horizon_s=true", "run.horizon_s: must be a number, got True"),
        ("run.warmup_s=10", "run.warmup_s: must be below horizon_s = 10, got 10"),
        ("run.warmup_s=-1", "run.warmup_s: must be at least 0, got -1"),
        ("run.replications=0", "run.replications: must be at least 1, got 0"),
        ("run.policies=[]", "run.policies: must have at least 1 entry, got []"),
        ("run.policies=[3]", "run.policies.0: must be a string or must be a table, got 3"),
        ('run.policies=["blance"]', "run.policies.0: unknown policy 'blance'; did you mean balance?"),
        ('run.policies=["fcfs", "fcfs"]', "run.policies.1: label must differ from the other labels, got 'fcfs'"),
        ('run.policies=[{kind="fcfs", label="a/b"}]', "run.policies.0: label must be letters, digits and _ . + -"),
        ("run.policies=[{label='x'}]", "run.policies.0: must be a name or {kind"),
        ('run.policies=[{kind="balance", step=1}]', "run.policies.0.step: unknown option"),
        ("run=3", "run: must be a table, got 3"),
        ("policy.balance.share_step=0.3", "policy.balance.share_step: must be 1/2, 1/3,"),
        ("policy.fcfs.foo=1", "policy.fcfs.foo: unknown option"),
        ("policy=3", "policy: must be a table, got 3"),
        ("requests.arrivals=poison", "requests.arrivals.kind: unknown arrival process 'poison'; did you mean poisson?"),
        ("requests.arrivals.rate_hz=nan", "requests.arrivals.rate_hz: must be a finite number, got nan"),
        ('requests.arrivals={kind="trace", file="nope"}', "requests.arrivals: unknown trace 'nope'"),
        ('requests.arrivals={kind="trace", file="no.csv"}', "requests.arrivals: no.csv: no such file"),
        ("requests.lengths=trace", "requests.lengths: file is needed"),
        ("requests.image_share=2", "requests.image_share: must be at most 1, got 2"),
        ("requests.context_overflow=crop", "requests.context_overflow: must be one of reject, cut, got 'crop'"),
        ("radio.uplink=3", "radio.uplink: must be a table, got 3"),
        ("radio.uplink.power_density_dbm_hz=-50", "radio.uplink.power_density_dbm_hz: must be left out when power_dbm"),
        ("radio.shadowing=1", "radio.shadowing: must be true or false, got 1"),
        ("radio.downlink.delivery=3", "radio.downlink.delivery: must be one of at_end, streamed, got 3"),
        ("network.cells=0", "network.cells: must be at least 1, got 0"),
        ("network.users_per_cell=0", "network.users_per_cell: must be at least 1, got 0"),
        ("network.servers=[0]", "network.servers: must have one entry for each of the 2 cells, got 1"),
        ("network.servers=[0, 2]", "network.servers: must number the servers from 0 without a gap, got [0, 2]"),
        ("network.min_distance_m=250", "network.min_distance_m: must be below radius_m = 250, got 250"),
        ("network.cell_positions_m=[[0, 0]]", "network.cells: must be the number of cell_positions_m, 1, got 2"),
        ("network.user_positions_m=[[0]]", "network.user_positions_m: must be pairs [x, y] in m, got [0.0]"),
        ("network.user_positions_m=[]", "network.user_positions_m: must be pairs [x, y] in m, got an empty list"),
        ("server.target=Llama-2-7b", "server.target: unknown model 'Llama-2-7b'; did you mean 'Llama-2-7B'?"),
        ("server.weights=fp15", "server.weights: must be one of fp16, fp8, int8, int4, got 'fp15'; did you mean fp16?"),
        ("server.utilisation=1.1", "server.utilisation: must be at most 1, got 1.1"),
        ("server.draft_length=nan", "server.draft_length: must be a whole number, got nan"),
        ("server.law.launch_s=-1", "server.law.launch_s: must be finite and at least 0, got -1.0"),
        ("scheduling.epoch_ms=0", "scheduling.epoch_ms: must be greater than 0, got 0"),
        ("scheduling.epoch_mode=on_event", 'scheduling.epoch_ms: must be left out with epoch_mode = "on_event"'),
        ("scheduling.switch_ms=20", "scheduling.switch_ms: must be below slice_ms = 20, got 20"),
        ("scheduling.slice_ms=0", "scheduling.switch_ms: must be 0 with fluid sharing"),
        (
            "scheduling.discipline=statik",
            "scheduling.discipline.kind: unknown discipline 'statik'; did you mean static?",
        ),
    ],
)
def test_bad_input_is_one_line_with_rule_and_value(tmp_path, override, expected) -> None:
    """Each kind of bad value names the key, the rule and what was given."""
    lines = complaints(tmp_path, override)
    assert [line for line in lines if line.startswith(expected)], lines
    assert all("\n" not in line for line in lines)


def test_weights_that_do_not_fit_say_by_how_much(tmp_path) -> None:
    """Llama-2-13B has 13,015,864,320 parameters, 24.24 GiB in fp16; 0.9·24 − 1 = 20.60 are usable: 3.64 too few."""
    (line,) = complaints(tmp_path, "server.target=Llama-2-13B")
    assert line.startswith(
        "server.target: weights of Llama-2-13B (24.24 GiB) exceed the usable memory of RTX 4090 (20.60 GiB) by 3.64 GiB"
    )


def test_a_draft_that_does_not_fit_beside_the_target_is_an_error(tmp_path) -> None:
    """Llama-2-7B takes 12.55 GiB of 0.62·24 − 1 = 13.88; TinyLlama's 2.05 exceed the rest by 0.72."""
    (line,) = complaints(tmp_path, "server.utilisation=0.62")
    assert line.startswith("server.draft: weights of TinyLlama-1.1B (2.05 GiB) do not fit beside those of Llama-2-7B")
    assert line.endswith("exceeded by 0.72 GiB")


def test_speculative_policies_need_a_draft_model(tmp_path) -> None:
    """Without a draft sd_only cannot decide; balance falls back to AD."""
    text = TINY
    for key in (
        'draft = "TinyLlama-1.1B"\n',
        'draft_law = {kind = "roofline", launch_s = 0.0001}\n',
        "draft_length = 4\n",
    ):
        text = text.replace(key, "")
    path = write(tmp_path, text)
    with pytest.raises(ScenarioError, match="sd_only"):
        load(path)
    assert [entry.label for entry in load(path, ['run.policies=["balance", "ad_only"]']).policies] == [
        "balance",
        "ad_only",
    ]


def test_keys_of_a_draft_come_and_go_with_it(tmp_path) -> None:
    """A draft needs its law and length; without a draft they are left out."""
    with pytest.raises(ScenarioError) as caught:
        load(write(tmp_path, TINY.replace("draft_length = 4\n", "")))
    assert caught.value.lines == ("tiny.toml: server.draft_length: is missing: a draft model needs it",)
    with pytest.raises(ScenarioError, match=r"draft_length: must be left out when there is no draft"):
        load(write(tmp_path, TINY.replace('draft = "TinyLlama-1.1B"\n', "")))


def test_different_vocabularies_are_a_warning(tmp_path) -> None:
    """TinyLlama (Llama-2's 32,000 tokens) with Llama-3.1-8B (128,256) runs, with a warning."""
    assert changed(tmp_path).warnings == ()
    (warning,) = changed(tmp_path, "server.target=Llama-3.1-8B").warnings
    assert "different vocabularies" in warning


def test_a_channel_must_have_what_it_asks_for(tmp_path) -> None:
    """TR 38.901 needs antenna heights and a carrier; without them nothing may start."""
    channel = "radio.channel={kind='umi'}"
    (line,) = complaints(tmp_path, channel)
    assert line.startswith("radio.channel: network.site_height_m and network.user_height_m are needed")
    heights = ("network.site_height_m=10", "network.user_height_m=1.5")
    assert changed(tmp_path, channel, *heights).network.site_height_m == 10.0
    with pytest.raises(ScenarioError, match=r"radio\.carrier_ghz is needed by this channel"):
        load(write(tmp_path, TINY.replace("carrier_ghz = 3.5\n", "")), [channel, *heights])


def test_a_switch_must_cost_less_than_the_smallest_window(tmp_path) -> None:
    """A policy may say its smallest share: of a slice of 20 ms, 0.1 is a window of 2 ms."""
    (tmp_path / "mine.py").write_text(MY_POLICY)
    narrow = 'run.policies=["mine.py:Narrow"]'
    assert changed(tmp_path, narrow, "scheduling.switch_ms=1.9").scheduling.slicing.switch_s == pytest.approx(0.0019)
    (line,) = complaints(tmp_path, narrow, "scheduling.switch_ms=2")
    assert line.startswith("scheduling.switch_ms: must be below the smallest window of policy Narrow, 2 ms, got 2;")


def test_a_trace_must_have_a_window_for_every_replication(tmp_path) -> None:
    """The Azure hour (3501.7 s) has five windows of 600 s."""
    trace = 'requests.arrivals={kind="trace", file="azure_conversation"}'
    wanted = (trace, "requests.lengths=trace", "run.horizon_s=600")
    assert changed(tmp_path, *wanted, "run.replications=5").run.replications == 5
    (line,) = complaints(tmp_path, *wanted, "run.replications=6")
    assert line.startswith("requests.arrivals: azure_conversation.csv: replication 5 needs the trace from 3000 s")


def test_files_are_looked_up_beside_the_scenario(tmp_path) -> None:
    """A scenario folder can be moved with its traces."""
    (tmp_path / "mine.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0.5,10,20\n11.5,10,20\n")
    scenario = changed(tmp_path, 'requests.arrivals={kind="trace", file="mine.csv", windows="same"}')
    assert scenario.workload.arrivals.file == str(tmp_path / "mine.csv")
    assert scenario.document["requests"]["arrivals"]["file"] == "mine.csv"


def test_the_document_has_defaults_and_gives_the_same_scenario(tmp_path) -> None:
    """What run.json keeps is complete, and a scenario built from it is equal."""
    scenario = changed(tmp_path)
    assert scenario.document["scheduling"]["kv_growth_tokens"] == 16
    assert scenario.document["network"]["area"] == "hexagon"
    assert from_document(scenario.document, "tiny", tmp_path) == scenario


# extends and overrides


def test_a_file_extends_another_key_by_key(tmp_path) -> None:
    """Keys of the file win, others come from the base, and from the base's base; bare names and endings both work."""
    write(tmp_path)
    write(tmp_path, 'extends = "tiny"\n[radio.uplink]\nbandwidth_mhz = 5\n', "middle")
    path = write(tmp_path, 'extends = "middle.toml"\n[run]\nseed = 7\n', "top")
    scenario = load(path)
    assert scenario.name == "top"
    assert (scenario.run.seed, scenario.run.horizon_s, scenario.radio.uplink.bandwidth_hz) == (7, 10, 5e6)
    assert "extends" not in scenario.document


def test_a_table_is_replaced_when_its_kind_changes(tmp_path) -> None:
    """Options of another kind do not leak; options of the same kind are merged."""
    arrivals = changed(
        tmp_path, "requests.arrivals.kind=deterministic", "requests.arrivals.rate_hz=2"
    ).workload.arrivals
    assert arrivals.name == "deterministic"
    document_ = document.read(write(tmp_path), ["requests.lengths={kind='uniform'}", "requests.deadline.kind=fixed"])
    assert document_.table["requests"]["lengths"] == {"kind": "uniform"}
    assert document_.table["requests"]["deadline"] == {"kind": "fixed", "deadline_s": 4}


def test_errors_name_the_file_that_set_the_key(tmp_path) -> None:
    """A fault of the base is fixed in the base."""
    write(tmp_path, TINY.replace("utilisation = 0.9", "utilisation = 9"))
    path = write(tmp_path, 'extends = "tiny"\n[run]\nhorizon_s = "x"\n', "top")
    with pytest.raises(ScenarioError) as caught:
        load(path, ["radio.bits_per_token=0"])
    assert [line.partition(": must")[0] for line in caught.value.lines] == [
        "top.toml: run.horizon_s", "--set: radio.bits_per_token", "tiny.toml: server.utilisation"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('extends = "a"\n', "a.toml: extends: forms a cycle: a -> a"),
        ('extends = "tini"\n', "a.toml: extends: no file tini.toml beside it; did you mean tiny?"),
        ("extends = 3\n", "a.toml: extends: must be the name of a scenario in the same folder, got 3"),
        ('extends = "../x"\n', "a.toml: extends: must be the name of a scenario in the same folder, got '../x'"),
        ("a = \n", "a.toml: is not valid TOML: Invalid value (at line 1, column 5)"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, text, expected) -> None:
    """Cycles, missing bases and syntax errors name file and place."""
    write(tmp_path)
    with pytest.raises(ScenarioError) as caught:
        load(write(tmp_path, text, "a"))
    assert caught.value.lines == (expected,)


def test_a_longer_cycle_is_found(tmp_path) -> None:
    """a extends b extends a."""
    write(tmp_path, 'extends = "b"\n', "a")
    write(tmp_path, 'extends = "a"\n', "b")
    with pytest.raises(ScenarioError, match="extends: forms a cycle: a -> b -> a"):
        load(tmp_path / "a.toml")


def test_missing_binary_and_unreadable_files_are_one_line(tmp_path) -> None:
    """Whatever the file system gives, the answer is one line."""
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder.toml").mkdir()
    for name, expected in [("none", "No such file"), ("binary", "not a text file"), ("folder", "Is a directory")]:
        with pytest.raises(ScenarioError, match=expected) as caught:
            load(tmp_path / f"{name}.toml")
        assert len(caught.value.lines) == 1


def test_names_stand_for_files_in_the_folder_of_scenarios(tmp_path, monkeypatch) -> None:
    """scenarios/NAME.toml of the working directory; an unknown name lists what there is."""
    (tmp_path / "scenarios").mkdir()
    write(tmp_path / "scenarios")
    monkeypatch.chdir(tmp_path)
    assert load("tiny").name == "tiny"
    with pytest.raises(ScenarioError, match="no scenario 'tinny'; did you mean tiny"):
        load("tinny")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", 3), ("3.5", 3.5), ("true", True), ("word", "word"), ('"a b"', "a b"), ("[1, 2]", [1, 2]),
     ("RTX 4090", "RTX 4090"),
     ("{kind='x'}", {"kind": "x"}), ("inf", math.inf), ("3 ms", "3 ms"), ("", ""), ("1\nb = 2", "1\nb = 2")],
)  # fmt: skip
def test_overrides_are_toml_values_or_words(tmp_path, text, expected) -> None:
    """Words need no quotes in a shell."""
    assert document.read(write(tmp_path), [f"a.b={text}"]).table["a"]["b"] == expected


@pytest.mark.parametrize("override", ["a.b", "=3", "a..b=3", ""])
def test_an_override_needs_key_and_value(tmp_path, override) -> None:
    """What is not key=value is refused."""
    with pytest.raises(ScenarioError, match=r"must be key\.key=value"):
        load(write(tmp_path), [override])


def test_a_later_override_may_replace_a_value_by_a_table(tmp_path) -> None:
    """The last one wins."""
    assert document.read(write(tmp_path), ["a=1", "a.b=2"]).table["a"] == {"b": 2}


# policies


def test_policies_have_options_by_name_by_label_and_their_own(tmp_path) -> None:
    """[policy.NAME] is for all entries of a policy, [policy.LABEL] for one, the entry's own options win."""
    scenario = changed(
        tmp_path,
        'run.policies=["balance", {kind="balance", label="fine", share_step=0.05}, {kind="balance", label="two"}]',
        "policy.balance.share_step=0.2",
        "policy.balance.refine=false",
        "policy.two.refine=true",
    )
    made = {entry.label: entry.make() for entry in scenario.policies}
    assert made == {
        "balance": Balance(share_step=0.2, refine=False),
        "fine": Balance(share_step=0.05, refine=False),
        "two": Balance(share_step=0.2, refine=True),
    }
    assert scenario.policy("fine").options == {"share_step": 0.05, "refine": False}
    with pytest.raises(ValueError, match="unknown policy 'fin'; did you mean fine"):
        scenario.policy("fin")


def test_a_users_own_policy_is_run_from_its_file(tmp_path) -> None:
    """A reference is looked up beside the scenario; its label is its class; its file's digest tells versions apart."""
    (tmp_path / "mine.py").write_text(MY_POLICY)
    scenario = changed(tmp_path, 'run.policies=["mine.py:Patient"]', "policy.Patient.patience_s=2")
    (entry,) = scenario.policies
    assert entry.label == "Patient"
    assert entry.make().patience_s == 2.0
    assert entry.make() is not entry.make()
    assert len(entry.source_sha256) == 64


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Broken", "policy.Broken: fails on a problem of one candidate: ZeroDivisionError: division by zero"),
        ("Wrong", "policy.Wrong: decide(problem) must return a Decision, got None"),
        ("Picky", "policy.Picky: patience is needed (policy Picky)"),
        ("Missing", "run.policies.0: mine.py has no class 'Missing'"),
    ],
)
def test_a_policy_that_cannot_decide_is_found_before_the_run(tmp_path, name, expected) -> None:
    """Every policy is asked once about a problem of one request."""
    (tmp_path / "mine.py").write_text(MY_POLICY)
    assert complaints(tmp_path, f'run.policies=["mine.py:{name}"]') == [expected]


def test_chosen_policies_replace_the_list(tmp_path) -> None:
    """--policy takes labels of the list, with their options, and other names."""
    (tmp_path / "mine.py").write_text(MY_POLICY)
    path = write(
        tmp_path, TINY.replace('"sd_only"]', '{kind="balance", label="fine", share_step=0.05}, "mine.py:Patient"]')
    )
    labels = ["fine", "fcfs", "Patient", "fine"]
    scenario = load(path, (), labels)
    assert [entry.label for entry in scenario.policies] == ["fine", "fcfs", "Patient"]
    assert scenario.document["run"]["policies"][0] == {"kind": "balance", "label": "fine", "share_step": 0.05}


# schema and docs


def test_the_json_schema_has_every_key_and_every_kind() -> None:
    """Editors complete keys, kinds and options."""
    schema = json.loads(json.dumps(scenario_schema()))
    uplink = schema["$defs"]["LinkTable"]["properties"]
    assert "bandwidth_mhz" in uplink
    arrivals = schema["$defs"]["RequestsTable"]["properties"]["arrivals"]["anyOf"]
    assert "poisson" in arrivals[0]["enum"]
    poisson = next(choice for choice in arrivals[1:] if choice["properties"]["kind"] == {"const": "poisson"})
    assert poisson["properties"]["rate_hz"] == {"type": "number"}
    assert poisson["required"] == ["kind", "rate_hz"]
    assert "extends" in schema["properties"]


def test_the_documentation_names_every_key() -> None:
    """docs/scenarios.md is complete."""
    text = (Path(__file__).parents[1] / "docs" / "scenarios.md").read_text(encoding="utf-8")
    keys = {key for model in _models(ScenarioTable) for key in model.model_fields}
    assert {key for key in keys if f"`{key}`" not in text and f"{key}]" not in text and f"[{key}." not in text} == set()


def _models(model):
    from balancesim.scenario.validation import _table_model

    below = [_table_model(info) for info in model.model_fields.values()]
    return [model, *(one for child in below if child is not None for one in _models(child))]
