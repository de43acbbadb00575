"""What recording every gradient of every step costs: the whole loop with it over the whole loop without."""

import contextlib

import pytest

from tests.bench import recorders
from tests.bench.race import AGAIN, BARE, Cost, Runner, race
from tests.bench.recorders import OURS, TENSORBOARD, WANDB
from tests.bench.workloads import mlp_workload, transformer_workload

RACES = {"MLP": (mlp_workload, 40, 3), "transformer": (transformer_workload, 14, 2)}
LIMITS = {"MLP": 1.15, "transformer": 1.06}


@pytest.fixture(scope="module", params=RACES)
def costs(request, tmp_path_factory, report) -> dict[str, Cost]:
    make, rounds, steps = RACES[request.param]
    workload = make()
    model = workload.make_model()  # one for all: where it lies in memory makes a difference of its own
    with contextlib.ExitStack() as stack:
        runners = [Runner(name, workload.loop(model)) for name in (BARE, AGAIN)]
        runners += [recorders.ours(workload, model), recorders.textbook(workload, model)]
        runners.append(stack.enter_context(recorders.tensorboard(workload, model, tmp_path_factory.mktemp("tensorboard"))))
        runners.append(stack.enter_context(recorders.wandb(workload, tmp_path_factory.mktemp("wandb"))))
        found = race(workload.name, runners, rounds, steps)
    report(found)
    return found


def test_recording_every_step_stays_under_the_limit(costs):
    assert costs[OURS].ratio.median <= LIMITS[costs[OURS].workload]


@pytest.mark.parametrize("peer", [TENSORBOARD, WANDB])
def test_recording_adds_a_tenth_of_what_others_add(costs, peer):
    assert costs[OURS].added.median <= costs[peer].added.median / 10
