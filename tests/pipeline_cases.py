"""Random and tiny instances of the pipeline shared by its tests."""

import math
from dataclasses import replace

import numpy as np

from balancesim.core.gpu import GpuSpec
from balancesim.core.llm import LlmSpec
from balancesim.core.pipeline_instance import PipelineInstance, PipelineTasks
from balancesim.core.pipeline_nodes import Fronthaul, PipelineNode
from balancesim.latency_laws import Affine

DRAFT = LlmSpec("draft", 22, 2048, 32, 4, 64, 5632, 3, 32000, False, 1.1e9, 0.969e9, 4096)
TARGET = LlmSpec("target", 32, 4096, 32, 32, 128, 11008, 3, 32000, False, 6.738e9, 6.476e9, 4096)
GPU = GpuSpec("any", 1e14, 1e12, 16e9)


def tasks(prompts: list[int], outputs: list[int] | int = 10, acceptance: float = 0.8) -> PipelineTasks:
    count = len(prompts)
    answers = np.full(count, outputs) if isinstance(outputs, int) else np.array(outputs)
    return PipelineTasks(
        np.array(prompts, dtype=np.int64),
        answers.astype(np.int64),
        np.full(count, acceptance),
        np.full(count, 1e5),
        np.full(count, 2.0),
    )


def instance(
    task_columns: PipelineTasks,
    draft_law: tuple[float, float] = (5e-14, 2e-3),
    target_law: tuple[float, float] = (2e-14, 10e-3),
    max_draft_length: int = 4,
) -> PipelineInstance:
    return PipelineInstance(
        tasks=task_columns,
        draft=PipelineNode(DRAFT, GPU, Affine(*draft_law), 16e9),
        target=PipelineNode(TARGET, GPU, Affine(*target_law)),
        bandwidth_hz=20e6,
        max_draft_length=max_draft_length,
    )


def random_instance(seed: int, count: int, longest_output: int = 60) -> PipelineInstance:
    """Tasks sorted by input; cost laws from weight-bound to compute-bound, so that all three circuits get critical."""
    rng = np.random.default_rng(seed)
    columns = PipelineTasks(
        np.sort(rng.integers(1, 513, count)),
        rng.integers(1, longest_output + 1, count),
        np.full(count, rng.uniform(0.5, 0.95)),
        rng.uniform(1e3, 1e6, count),
        rng.uniform(0.5, 8.0, count),
    )
    laws = [(10 ** rng.uniform(-14, -13), 10 ** rng.uniform(-4, -1.5)) for _ in range(2)]
    crossing = Fronthaul(1e9, rng.choice([0.0, 1e-3]), rng.choice([0.0, 5e5]), 32.0)
    return replace(instance(columns, laws[0], laws[1]), fronthaul=crossing)


def with_draft_memory(case: PipelineInstance, kv_tokens: float) -> PipelineInstance:
    """Give the SBS room for so many KV tokens."""
    memory = DRAFT.weight_bytes + kv_tokens * DRAFT.kv_bytes_per_token
    return replace(case, draft=replace(case.draft, memory_bytes=memory))


LINK_DOWN = Fronthaul(delay_s=math.inf)
