import math
import random

import pytest
import simpy

from balancesim.core.slicing import Layout, Slicing
from balancesim.processes.gpu import Gpu


def run_jobs(slicing, shares, jobs, changes=()):
    """Run jobs (lane, start, work) and share changes (time, shares); return the end of every job in order."""
    env = simpy.Environment()
    gpu = Gpu(env, slicing)
    gpu.set_shares(shares)
    ends = {}
    queues = {lane: [j for j in enumerate(jobs) if j[1][0] == lane] for lane in shares}
    lost = {}

    def start_next(lane):
        if not queues[lane]:
            return
        index, (_, start, work) = queues[lane][0]
        if env.now < start:
            env.timeout(start - env.now).callbacks.append(lambda _: start_next(lane))
            return
        queues[lane].pop(0)

        def done():
            assert gpu.received_s(lane) == pytest.approx(work, abs=1e-9)
            ends[index] = env.now
            lost[index] = gpu.switching_s(lane)
            start_next(lane)

        gpu.run(lane, work, done)

    for lane in shares:
        start_next(lane)
    for time, new in changes:
        env.timeout(time).callbacks.append(lambda _, new=new: gpu.set_shares(new))
    env.run()
    return [ends[i] for i in range(len(jobs))], [lost[i] for i in range(len(jobs))]


def step_twin(slicing, shares, jobs, dt, changes=()):
    """The obvious twin: walk through time in ticks of ``dt`` and hand each tick to whom it belongs."""
    order = list(shares)
    pending = {lane: [[i, s, w] for i, (l, s, w) in enumerate(jobs) if l == lane] for lane in order}
    ends, tick = {}, 0
    layout, change, queue = dict(shares), None, sorted(changes, key=lambda c: c[0])
    runner, switch_left, window = None, 0.0, None
    per_period = round(slicing.slice_s / dt)
    while any(pending.values()):
        now = tick * dt
        phase = tick % per_period
        edges, position = [], 0.0
        for lane in order:
            position += layout[lane]
            edges.append(round(position * per_period))
        owner_window = next((i for i, e in enumerate(edges) if phase < e), None)
        if change is not None and (owner_window, tick // per_period) != window:
            layout, change = change, None
            continue
        busy = {lane for lane in order if pending[lane] and pending[lane][0][1] <= now + 1e-12}
        while queue and queue[0][0] <= now + 1e-12:
            new = queue.pop(0)[1]
            if busy:
                change, window = new, (owner_window, tick // per_period)
            else:
                layout = new
        owner = None
        if owner_window is not None and order[owner_window] in busy:
            owner = order[owner_window]
        elif busy and slicing.work_conserving:
            index = owner_window if owner_window is not None else len(order)
            owner = next(
                order[(index - k) % len(order)]
                for k in range(1, len(order) + 1)
                if order[(index - k) % len(order)] in busy
            )
        if owner is not None:
            if owner != runner:
                switch_left = slicing.switch_s if runner is not None else 0.0
                runner = owner
            if switch_left > dt / 2:
                switch_left -= dt
            else:
                job = pending[owner][0]
                job[2] -= dt
                if job[2] < dt / 2:
                    ends[job[0]] = now + dt
                    pending[owner].pop(0)
        tick += 1
    return [ends[i] for i in range(len(jobs))]


def test_alone_a_lane_gets_the_whole_gpu():
    """With work conservation and nobody else busy, GPU seconds are wall-clock seconds and no switch is paid."""
    ends, lost = run_jobs(Slicing(0.1, 0.01), {0: 0.3, 1: 0.7}, [(0, 0.05, 1.0), (0, 0.0, 0.5)])
    assert ends == [pytest.approx(1.05), pytest.approx(1.55)]
    assert lost == [0.0, 0.0]


def test_two_lanes_by_hand():
    """P = 1, shares 0.4/0.6, c = 0.1: lane 0 works in [0, .4), [1.1, 1.4), …; lane 1 in [.5, 1), [1.5, 2), …"""
    ends, lost = run_jobs(Slicing(1.0, 0.1), {0: 0.4, 1: 0.6}, [(0, 0.0, 0.6), (1, 0.0, 0.9)])
    # lane 0: 0.4 in the first window, then switch until 1.1, 0.2 more at 1.3; lane 1: 0.5 by 1.0, at 1.3 the GPU is
    # free, switch until 1.4, 0.4 more at 1.8
    assert ends == [pytest.approx(1.3), pytest.approx(1.8)]
    assert lost == [pytest.approx(0.1), pytest.approx(0.2)]


def test_idle_windows_are_lost_without_work_conservation():
    """As in [P1], a lane alone progresses at its share only: 0.6 s at share 0.5 and P = 1 end at 1.1 s."""
    ends, _ = run_jobs(Slicing(1.0, 0.0, False), {0: 0.5, 1: 0.5}, [(0, 0.0, 0.6)])
    assert ends == [pytest.approx(1.1)]


@pytest.mark.parametrize("work_conserving", [True, False])
@pytest.mark.parametrize("lanes", [2, 3])
@pytest.mark.parametrize("seed", range(25))
def test_the_closed_form_equals_walking_through_time(seed, lanes, work_conserving):
    """Random jobs, switch costs and changes of shares end where the tick-by-tick twin says."""
    rng = random.Random(1000 * lanes + seed + 7 * work_conserving)
    dt = 1 / 1024  # a power of two keeps the twin's arithmetic exact

    def shares():
        cut = sorted(rng.sample(range(2, 15), lanes - 1))
        ends = [0, *cut, 16 if rng.random() < 0.5 else 15]
        return {lane: (ends[lane + 1] - ends[lane]) / 16 for lane in range(lanes)}

    slicing = Slicing(16 * 8 * dt, rng.choice([0, 2, 5]) * dt, work_conserving)
    first = shares()
    jobs = [(rng.randrange(lanes), rng.randrange(0, 600) * dt, rng.randrange(1, 300) * dt) for _ in range(8)]
    jobs.sort(key=lambda j: j[1])
    changes = [(rng.randrange(1, 1200) * dt, shares()) for _ in range(rng.choice([0, 1, 2]))]
    ends, _ = run_jobs(slicing, first, jobs, changes)
    assert ends == pytest.approx(step_twin(slicing, first, jobs, dt, changes), abs=1e-9)


def test_short_slices_approach_fluid_sharing():
    """As the period goes to 0 without switch cost, completions converge to fluid sharing, at least linearly in P."""
    jobs = [(0, 0.0, 1.0), (1, 0.013, 2.0), (0, 1.7, 0.4)]
    fluid, _ = run_jobs(Slicing(0.0), {0: 0.37, 1: 0.63}, jobs)
    # by hand: lane 1 alone never before 0.013; both busy until lane 0 has 1.0
    first = 0.013 + (1.0 - 0.013) / 0.37
    assert fluid[0] == pytest.approx(first)
    for period in (0.5, 0.05, 0.005, 0.0005):
        ends, _ = run_jobs(Slicing(period), {0: 0.37, 1: 0.63}, jobs)
        assert max(abs(a - b) for a, b in zip(ends, fluid, strict=True)) <= period


def test_no_gpu_second_is_made_or_lost():
    """While both lanes are busy, work done plus switching equals the time passed."""
    slicing = Slicing(0.08, 0.003)
    ends, lost = run_jobs(slicing, {0: 0.25, 1: 0.75}, [(0, 0.0, 3.0), (1, 0.0, 9.0)])
    assert 3.0 + 9.0 + sum(lost) == pytest.approx(max(ends))


def test_a_switch_as_long_as_its_window_is_an_error():
    """A window that the switch cost would eat up is refused, naming the lane and the window."""
    with pytest.raises(ValueError, match=r"switch_s must be below every window, got 0.02 s for lane 1"):
        Layout.of({0: 0.9, 1: 0.1}, Slicing(0.1, 0.02))
    with pytest.raises(ValueError, match="must be 0 with fluid sharing"):
        Slicing(0.0, 0.1)
    with pytest.raises(ValueError, match="must be positive and all sum to at most 1"):
        Layout.of({0: 0.9, 1: 0.2}, Slicing(0.1))
    with pytest.raises(ValueError, match="finite and at least 0"):
        Slicing(-math.inf)
