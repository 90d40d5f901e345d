"""A torch that has changed inside is refused by name, before anything is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from parts import needs

_METHOD = """
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent
for agent in (LocalElasticAgent, SimpleElasticAgent):
    del agent._monitor_workers
"""
_ATTRIBUTE = """
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
def constructor(self):
    self._renamed = None
DynamicRendezvousHandler.__init__ = constructor
"""
_FUNCTION = """
import torch.distributed.run
del torch.distributed.run.config_from_args
"""


@needs("many processes")
@pytest.mark.parametrize(
    ("removal", "name"),
    [
        (_METHOD, "LocalElasticAgent has no _monitor_workers"),
        (_ATTRIBUTE, "DynamicRendezvousHandler has no _bootstrap_store_info"),
        (_FUNCTION, "cannot import name 'config_from_args'"),
    ],
)
def test_a_torch_that_lacks_a_name_is_refused_with_the_versions_that_work(
    removal: str, name: str, tmp_path: Path
) -> None:
    """The message says which name is missing, from which version, and what to install."""
    (tmp_path / "train.py").write_text("print('started')")
    main = "from launch.torch_distributed import main; main()"

    ended = subprocess.run(
        [sys.executable, "-c", f"{removal}\n{main}", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
    )

    assert (ended.returncode, ended.stdout) == (1, "")
    assert name in ended.stderr
    assert f"torch {torch.__version__}" in ended.stderr
    assert "pip install 'torch" in ended.stderr
    assert "Traceback" not in ended.stderr
