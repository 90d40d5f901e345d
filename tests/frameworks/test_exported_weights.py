"""Transformers reads the weights that a checkpoint's export has written."""

from __future__ import annotations

from pathlib import Path

from frameworks.environments import FrameworkEnvironment

_SCRIPT = """
from pathlib import Path
import torch
from torch.distributed import checkpoint as dcp
from transformers import GPT2Config, GPT2LMHeadModel
from core_sdk import core, loop
from core_sdk.client import Tracker

config = GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=32, n_positions=8, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
with core.init(name="weights", checkpoint_storage="storage") as context:
    by_state = loop.State(model=model).save(context, steps_completed=1)
    writer = context.checkpoint.dcp_writer({"steps_completed": 2})
    dcp.save({"model": model.state_dict()}, storage_writer=writer)
    with context.checkpoint.store_path({"steps_completed": 3}) as (path, by_transformers):
        model.save_pretrained(path, max_shard_size=2000)
    assert len(list(Path("storage", by_transformers).glob("model-*.safetensors"))) > 1
given = {"part": "model"}
exports = [(by_state, given), (by_state, given | {"max_shard_bytes": 3000})]
exports += [(writer.storage_id, given), (by_transformers, {})]
for number, (storage_id, options) in enumerate(exports):
    exported = Tracker().get_checkpoint(storage_id).export(f"out{number}", **options)
    config.save_pretrained(exported.path)
    loaded, told = GPT2LMHeadModel.from_pretrained(exported.path, output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"], told
    assert loaded.lm_head.weight is loaded.transformer.wte.weight
    assert all(torch.equal(own, loaded.state_dict()[name]) for name, own in model.state_dict().items())
"""


def test_transformers_reads_an_export(callbacks: FrameworkEnvironment, tmp_path: Path) -> None:
    """A model of `State`, dcp or Transformers comes back by `from_pretrained()`, also in shards, with tied weights."""
    (tmp_path / "train.py").write_text(_SCRIPT)

    ended = callbacks.run("train.py", cwd=tmp_path, timeout_s=120)

    assert ended.returncode == 0, ended.stdout + ended.stderr
