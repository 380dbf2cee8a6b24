"""The obvious twin of the continuous discipline: one event per step, contexts counted request by request."""

import simpy

from balancesim.core.lane_models import ContinuousLanes
from balancesim.core.latency import decode_steps_s, prefill_s, rounds_s
from balancesim.core.request import Mode
from balancesim.core.work import ForwardPass, Phase, decode_pass, verify_pass
from balancesim.processes.gpu import Gpu


class StepLane:
    """Runs step after step; between steps it takes who has come."""

    def __init__(self, env, gpu, spec, lane_id, mode, draft_length, engine):
        self.budget, self.prefill_first = engine.token_budget, engine.prefill_first
        self.env, self.gpu, self.spec = env, gpu, spec
        self.lane_id, self.mode, self.draft_length = lane_id, mode, draft_length
        self.coming, self.batch, self.busy = [], [], False
        self.first, self.last = {}, {}

    def join(self, request, rounds):
        self.coming.append([request, list(rounds), 0, 0])
        if not self.busy:  # all who come at this instant start together
            self.busy = True
            self.env.timeout(0).callbacks.append(lambda _: self.begin())

    def begin(self):
        rows = 0 if self.prefill_first else len(self.batch) * (self.draft_length + 1)
        if self.coming and self.budget is not None and self.budget > rows:
            self.chunks(self.budget - rows)
        elif self.coming and self.budget is None:
            fresh, self.coming = self.coming, []
            prompts = [float(r.prompt_tokens) for r, *_ in fresh]
            work = prefill_s(self.spec, self.mode, float(len(fresh)), sum(prompts), sum(p * p for p in prompts))
            self.gpu.run(self.lane_id, float(work), lambda: self.prefilled(fresh))
        elif self.batch:
            contexts = [r.prompt_tokens + out for r, _, out, _ in self.batch]
            size, total = float(len(contexts)), float(sum(contexts))
            if self.mode is Mode.SD:
                cost = rounds_s(self.spec, size, total, self.draft_length)
                work = float(cost.draft_s + cost.verify_s)
            else:
                work = float(decode_steps_s(self.spec, size, total))
            self.gpu.run(self.lane_id, work, self.stepped)
        else:
            self.busy = False

    def chunks(self, left):
        """One step: token after token of the prompts in order, until the budget is used; the batch decodes beside."""
        taken = []
        for entry in self.coming:
            done = entry[3]
            while left > 0 and entry[3] < entry[0].prompt_tokens:
                entry[3] += 1
                left -= 1
            if entry[3] > done:
                taken.append((done, entry[3]))
        count, new = float(len(taken)), float(sum(b - a for a, b in taken))
        chunk = ForwardPass(
            count, new, float(sum(b * b - a * a for a, b in taken)), float(sum(a for a, _ in taken)), count
        )
        batch = [] if self.prefill_first else list(self.batch)
        size, total = float(len(batch)), float(sum(r.prompt_tokens + out for r, _, out, _ in batch))
        if not batch:
            work = self.spec.target_s(Phase.PREFILL, chunk)
        elif self.mode is Mode.SD:
            work = self.spec.target_mixed_s(chunk, Phase.VERIFY, verify_pass(size, total, self.draft_length))
            work += float(rounds_s(self.spec, size, total, self.draft_length).draft_s)
        else:
            work = self.spec.target_mixed_s(chunk, Phase.DECODE, decode_pass(size, total))
        if self.mode is Mode.SD:
            work += self.spec.draft_s(Phase.PREFILL, chunk)
        self.gpu.run(self.lane_id, float(work), lambda: self.chunked(batch))

    def chunked(self, batch):
        for entry in batch:
            entry[2] += entry[1].pop(0) if self.mode is Mode.SD else 1
        fresh = [entry for entry in self.coming if entry[3] == entry[0].prompt_tokens]
        self.coming = [entry for entry in self.coming if entry[3] < entry[0].prompt_tokens]
        self.prefilled(fresh)

    def prefilled(self, fresh):
        for entry in fresh:
            entry[2] = 1
            self.first[entry[0].request_id] = self.env.now
            self.batch.append(entry)
        self.leave()

    def stepped(self):
        for entry in self.batch:
            entry[2] += entry[1].pop(0) if self.mode is Mode.SD else 1
        self.leave()

    def leave(self):
        for entry in [e for e in self.batch if e[2] >= e[0].output_tokens]:
            self.last[entry[0].request_id] = self.env.now
            self.batch.remove(entry)
        self.begin()


def step_by_step(spec, slicing, modes, joins, changes, engine=None):
    """Run joins (time, lane, request, rounds) and changes (time, shares); return first and last token times."""
    env = simpy.Environment()
    gpu = Gpu(env, slicing)
    engine = engine or ContinuousLanes()
    lanes = {lane: StepLane(env, gpu, spec, lane, mode, gamma, engine) for lane, (mode, gamma) in modes.items()}
    for time, shares in changes:
        env.timeout(time).callbacks.append(lambda _, shares=shares: gpu.set_shares(shares))
    for time, lane, request, rounds in joins:
        env.timeout(time).callbacks.append(lambda _, x=(lane, request, rounds): lanes[x[0]].join(x[1], x[2]))
    env.run()
    first = {k: v for lane in lanes.values() for k, v in lane.first.items()}
    last = {k: v for lane in lanes.values() for k, v in lane.last.items()}
    return first, last
