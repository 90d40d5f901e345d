"""The same training with Accelerate, on one rank or on several.

python -m launch.torch_distributed --nproc-per-node=2 -- python examples/7_accelerate.py
"""

import argparse

import torch
from accelerate import Accelerator
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import digits
from core_sdk import core, loop
from core_sdk.integrations.accelerate import CoreSDKTracker, load_state, save_state


def main(args: argparse.Namespace, core_context: core.Context) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    train_digits, test_digits = digits.load()
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), log_with=CoreSDKTracker(core_context))
    accelerator.init_trackers("digits")
    train_loader = DataLoader(TensorDataset(*train_digits), batch_size=32, shuffle=True)
    train_data = loop.resumable(train_loader, distributed=core_context.distributed)
    model = digits.make_model()
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-3))
    accelerator.register_for_checkpointing(train_data)
    load_state(accelerator, core_context)

    for epoch in range(train_data.epoch, args.epochs):
        model.train()
        for images, labels in train_data:
            optimizer.zero_grad()
            outputs = model(images.to(accelerator.device))
            loss = functional.cross_entropy(outputs, labels.to(accelerator.device))
            accelerator.backward(loss)
            optimizer.step()
            accelerator.log({"loss": loss.item()}, step=train_data.batches)
            if core_context.preempt.should_preempt():
                save_state(accelerator, core_context, {"steps_completed": train_data.batches})
                return
        _, accuracy = digits.evaluate(model, test_digits.to(accelerator.device))
        validation = {"core-sdk": {"group": "validation"}}
        accelerator.log({"accuracy": accuracy}, step=train_data.batches, log_kwargs=validation)
        core_context.train.report_progress((epoch + 1) / args.epochs)
        save_state(accelerator, core_context, {"steps_completed": train_data.batches})


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_arguments()
    distributed_context = core.DistributedContext.from_torch_distributed()
    with core.init(distributed=distributed_context, name="digits-accelerate") as core_context:
        main(args, core_context)
