"""Programs that lead a training, as people write them in one file or in a notebook's cell, on each engine."""

from __future__ import annotations

import pytest
from execution.workers.engines import NUM_CPUS, RayNode, ray_node
from execution.workers.programs import Programs
from processes import wait_for

from core_sdk import client
from core_sdk._home import Home

TIMEOUT_S = 170

ON_RAY = pytest.mark.parametrize("programs", ["ray"], indirect=True)

CREATORS = """
import torch
from torch import nn
from core_sdk.sgd import PyTorchTrainer

class Line(nn.Linear):
    pass

def model_creator(config):
    torch.manual_seed(0)
    return Line(1, 1)

def data_creator(config):
    x = torch.linspace(-1, 1, 48).unsqueeze(1)
    print("making data")
    return torch.utils.data.TensorDataset(x, 2 * x + 1), torch.utils.data.TensorDataset(x, 2 * x + 1)

def optimizer_creator(model, config):
    return torch.optim.SGD(model.parameters(), lr=0.1)

def die(directory):
    def train(config, model, batches, criterion, optimizer):
        for number, (x, y) in enumerate(batches):
            path = os.path.join(directory, "die")
            if number == 2 and torch.distributed.get_rank() == 1 and os.path.exists(path):
                os.unlink(path)
                os.kill(os.getpid(), signal.SIGKILL)
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return {"loss": loss.item(), "size": torch.distributed.get_world_size()}
    return train

def trainer(**arguments):
    return PyTorchTrainer(model_creator, data_creator, optimizer_creator, nn.MSELoss, batch_size=12, **arguments)

"""


def test_a_notebook_leads_a_training(programs: Programs) -> None:
    """A training works with functions and classes piped into Python, and the program shows its workers' output."""
    output = programs.run(
        CREATORS
        + """
        with trainer(num_replicas=2, engine=engine()) as one:
            first = [one.train()["train_loss"] for _ in range(5)]
            assert first[-1] < first[0] / 2, first
            assert type(one.get_model()) is Line
            print(sorted(one.validate()))
        """.replace("        ", "", 1).replace("\n        ", "\n"),
        is_piped=True,
        timeout_s=TIMEOUT_S,
    )

    assert output.count("making data") == 2
    assert "['mean_loss', 'validation_loss']" in output


@ON_RAY
def test_a_trainer_on_ray_shrinks_and_grows_with_the_cluster(programs: Programs, ray_address: str) -> None:
    """On Ray, a training shrinks when a dead worker's place is taken, and grows when there is room again."""
    programs.run(
        CREATORS
        + f"""
import ray
from ray.util.placement_group import placement_group, remove_placement_group

def wait_for_free(number):
    deadline = time.monotonic() + 30
    while ray.available_resources().get("CPU", 0) != number:
        assert time.monotonic() < deadline
        time.sleep(0.05)

ray.init(address={ray_address!r}, logging_level="WARNING")
wait_for_free({NUM_CPUS})
others = placement_group([{{"CPU": {NUM_CPUS} - 3}}])
ray.get(others.ready())

with trainer(num_replicas=3, train_function=die(os.getcwd())) as one:  # on Ray, since the program is connected to it
    sizes = [one.train(max_retries=1)["size"]]
    wait_for_free(0)
    waiting = placement_group([{{"CPU": 1}}])
    open("die", "w").close()
    sizes.append(one.train(max_retries=1)["size"])
    remove_placement_group(waiting)
    wait_for_free(1)
    sizes.append(one.train(max_retries=1)["size"])
    assert one.epoch == 3
    assert sizes == [3, 2, 3], sizes
remove_placement_group(others)
""",
        timeout_s=TIMEOUT_S,
    )


@ON_RAY
def test_more_replicas_than_the_cluster_has_room_for_are_refused(programs: Programs) -> None:
    """More replicas than the cluster has room for are refused with what they ask for and what there is."""
    programs.run(
        CREATORS
        + """
try:
    trainer(num_replicas=12, engine=engine(placement_timeout_s=1))
except WorkersNotStartedError as error:
    assert "they ask for 12 CPU" in str(error) and "the cluster has 8 CPU" in str(error), error
else:
    raise AssertionError
"""
    )


@ON_RAY
@pytest.mark.timeout(300)
def test_a_cluster_that_goes_away_in_a_pass_ends_the_program(
    programs: Programs, dying_ray: RayNode, free_port: int, home: Home
) -> None:
    """A cluster that goes away ends the program with an error; its next start continues after the last good pass."""
    source = (
        CREATORS
        + """
from core_sdk._execution.workers.ray import RayEngine

def train(config, model, batches, criterion, optimizer):
    if is_marked("began"):
        mark("in pass 2")
        time.sleep(600)
    return {"loss": 1.0}

with trainer(num_replicas=2, train_function=train, engine=RayEngine(os.environ["CLUSTER"]), job_id="line") as one:
    print("epoch", one.epoch)
    if one.epoch == 0:
        one.train(max_retries=3)
        mark("began")
        one.train(max_retries=3)
"""
    )
    program = programs.start(source, CLUSTER=dying_ray.address)
    wait_for((programs.directory / "in pass 2").exists)
    dying_ray.kill()
    code, _, errors = program.wait(TIMEOUT_S)

    words = f"RayClusterError: the Ray cluster at {dying_ray.address} cannot be used: it does not answer any more"
    assert code == 1
    assert words in errors, "Ray has not kept it back"
    trial = client.get_trial(1)
    assert trial.state.name == "ERROR"
    assert words in trial.reason
    with ray_node("--head", f"--port={free_port}", "--num-cpus=2"):
        assert "epoch 1\n" in programs.run(source, CLUSTER=f"127.0.0.1:{free_port}", timeout_s=TIMEOUT_S)
    assert client.get_trial(1).state.name == "COMPLETED"
