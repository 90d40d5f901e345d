"""The rendezvous through torch's own store, which torchrun's agent or the process group keeps at MASTER_ADDR."""

from __future__ import annotations

import datetime

import msgspec
from torch.distributed import DistNetworkError, TCPStore  # type: ignore[attr-defined]

from core_sdk.distributed._rendezvous import Address, Rendezvous
from core_sdk.errors import ContradictoryRanksError, JoinError


class TorchStoreRendezvous(Rendezvous):
    """Whoever may connect to the store may read the key, as they may disturb torch's own groups."""

    def __init__(self, host: str, port: int, prefix: str, timeout_s: float) -> None:
        """Blocks until the store answers; `JoinError` if it does not."""
        self.where = f"the store of torch.distributed at {host}:{port}"
        self._key = f"core_sdk/{prefix}/chief"
        try:
            self._store = TCPStore(
                host, port, is_master=False, timeout=datetime.timedelta(seconds=timeout_s), wait_for_workers=False
            )
        except DistNetworkError as error:
            raise JoinError(
                f"{self.where} does not answer ({str(error).splitlines()[0]}). Start the script with torchrun or "
                "`python -m launch.torch_distributed`, or call torch.distributed.init_process_group() first."
            ) from error

    def publish(self, address: Address) -> None:
        if self._store.check([self._key]):
            raise ContradictoryRanksError([f"another rank 0 is waiting for its ranks in {self.where}"])
        self._store.set(self._key, msgspec.json.encode(address).decode())

    def look(self) -> Address | None:
        if not self._store.check([self._key]):
            return None
        return msgspec.json.decode(self._store.get(self._key), type=Address)

    def withdraw(self) -> None:
        self._store.delete_key(self._key)
