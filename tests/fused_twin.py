"""The obvious twin of the fused discipline: one event per step, every pass added up request by request."""

import simpy

from balancesim.core.speculation import expected_tokens_per_round
from balancesim.core.work import ForwardPass, Phase


def passes_s(spec, members):
    """Time of one step of members (context, draft length), from the rows of every pass."""
    total = 0.0
    for depth in range(1, max(gamma for _, gamma in members) + 1):
        contexts = [float(c + depth - 1) for c, gamma in members if gamma >= depth]
        size, read = float(len(contexts)), sum(contexts)
        total += float(spec.draft_s(Phase.DECODE, ForwardPass(size, size, read, read, size)))
    rows = [float(c + row) for c, gamma in members for row in range(gamma + 1)]
    read = float(sum(c + gamma for c, gamma in members))
    count = float(len(rows))
    phase = Phase.VERIFY if any(gamma for _, gamma in members) else Phase.DECODE
    return total + float(spec.target_s(phase, ForwardPass(float(len(members)), count, sum(rows), read, count)))


class Mind:
    """What a request emits, round by round; ``rounds`` for constant lengths, else by position."""

    def __init__(self, request, gamma, law, luck, *, ruled):
        self.request, self.gamma, self.ruled, self.out = request, gamma, ruled, 0
        self.mean = law.name == "expected"
        self.position = 0.0
        self.rounds = [] if ruled or not gamma else list(law.rounds(request, gamma, luck))
        if ruled and not self.mean and gamma:  # what rounds of each length would emit, were they to begin here
            self.kept = law.kept_by_depth(request, gamma, luck)

    def emit(self, length):
        if not self.gamma:
            self.out += 1
        elif not self.ruled:
            self.out += int(self.rounds.pop(0))
        elif self.mean:
            self.position += float(expected_tokens_per_round(self.request.acceptance_rate, length))
            self.out = 1 + int(self.position + 1e-9)
        else:
            self.out += 1 + int(self.kept[self.out - 1, length])
        self.out = min(self.out, self.request.output_tokens)


def step_by_step(spec, minds, choose):
    """Run (join time, mind)s with the draft lengths ``choose(minds)`` of each step; return first, last, drafted."""
    env = simpy.Environment()
    first, last, drafted = {}, {}, dict.fromkeys((m.request.request_id for _, m in minds), 0)
    coming, state = [], {"busy": False, "batch": []}

    def join(mind):
        coming.append(mind)
        if not state["busy"]:
            state["busy"] = True
            env.timeout(0).callbacks.append(lambda _: begin())

    def begin():
        if coming:
            fresh = coming[:]
            coming.clear()
            work = prefill_s(spec, fresh)
            env.timeout(work).callbacks.append(lambda _: prefilled(fresh))
        elif state["batch"]:
            batch = state["batch"]
            lengths = choose(batch)
            work = passes_s(spec, [(m.request.prompt_tokens + m.out, g) for m, g in zip(batch, lengths, strict=True)])
            env.timeout(work).callbacks.append(lambda _: stepped(lengths))
        else:
            state["busy"] = False

    def prefilled(fresh):
        for mind in fresh:
            mind.out = 1
            first[mind.request.request_id] = env.now
            state["batch"].append(mind)
        leave()

    def stepped(lengths):
        for mind, length in zip(state["batch"], lengths, strict=True):
            drafted[mind.request.request_id] += int(length)
            mind.emit(int(length))
        leave()

    def leave():
        for mind in [m for m in state["batch"] if m.out >= m.request.output_tokens]:
            last[mind.request.request_id] = env.now
            state["batch"].remove(mind)
        begin()

    for time, mind in minds:
        env.timeout(time).callbacks.append(lambda _, mind=mind: join(mind))
    env.run()
    return first, last, drafted


def prefill_s(spec, minds):
    """One pass of the target over all prompts, one of the draft over those that may draft."""
    total = 0.0
    for forward, some in ((spec.target_s, minds), (spec.draft_s, [m for m in minds if m.gamma])):
        if some:
            prompts = [float(m.request.prompt_tokens) for m in some]
            count = float(len(some))
            total += float(
                forward(Phase.PREFILL, ForwardPass(count, sum(prompts), sum(p * p for p in prompts), 0.0, count))
            )
    return total
