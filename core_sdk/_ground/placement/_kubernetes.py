"""Reads the variables of Kubernetes' indexed Jobs, in which each node is a pod that knows its index."""

from __future__ import annotations

from collections.abc import Mapping

from core_sdk._ground.placement._placement import Placement, bad_variable, port_of
from core_sdk.errors import PlacementError

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
NUM_NODES_VARIABLE = "CORE_SDK_NUM_NODES"
_TORCHRUN_NUM_NODES = "PET_NNODES"


def kubernetes_placement(variables: Mapping[str, str], hostname: str, fqdn: str) -> Placement | None:
    """Returns the placement of this pod; None outside of an indexed Job.

    `hostname` is `JOB-INDEX`; `fqdn` is the same, followed by `.SUBDOMAIN.NAMESPACE.svc.…` if the pod has a subdomain.
    Raises a `PlacementError` that says what the manifest lacks.
    """
    if not variables.get(INDEX_VARIABLE):
        return None
    index, num_nodes = _number(variables, INDEX_VARIABLE), _num_nodes(variables)
    if index >= num_nodes > 1:
        raise bad_variable(INDEX_VARIABLE, str(index), f"less than the number of nodes, {num_nodes}")
    job = f"kubernetes/{hostname.partition('.')[0].removesuffix(f'-{index}')}"
    return Placement(
        addresses=(hostname,) if num_nodes == 1 else _addresses(variables, index, num_nodes, fqdn),
        # A pod that trains alone may have any index.
        node_rank=index if num_nodes > 1 else 0,
        slots=None,
        port=_number(variables, "MASTER_PORT") if variables.get("MASTER_PORT") else port_of(job),
    )


def _num_nodes(variables: Mapping[str, str]) -> int:
    """Returns the number of pods; the maximum for an elastic training (`PET_NNODES=1:4`)."""
    if variables.get(NUM_NODES_VARIABLE):
        num_nodes = _number(variables, NUM_NODES_VARIABLE)
    elif variables.get(_TORCHRUN_NUM_NODES):
        most = variables[_TORCHRUN_NUM_NODES].rpartition(":")[2]
        num_nodes = _number({_TORCHRUN_NUM_NODES: most}, _TORCHRUN_NUM_NODES)
    else:
        raise PlacementError(
            f"this pod belongs to an indexed Job of an unknown number of pods. Set {NUM_NODES_VARIABLE} in the "
            "container's env to the Job's `completions`, or to 1 if each pod trains alone."
        )
    if num_nodes < 1:
        raise bad_variable(NUM_NODES_VARIABLE, str(num_nodes), "at least 1")
    return num_nodes


def _addresses(variables: Mapping[str, str], index: int, num_nodes: int, own_name: str) -> tuple[str, ...]:
    own, _, domain = own_name.partition(".")
    first = variables.get("MASTER_ADDR")
    is_numbered = own.endswith(f"-{index}")
    if not first and not (domain and is_numbered):
        raise PlacementError(
            f"the host name {own_name} does not tell the address of the first pod. Make a headless Service "
            "(`clusterIP: None`) for the Job's pods, and name it as `subdomain` in the pod template; or set "
            "MASTER_ADDR."
        )
    stem = own.removesuffix(f"-{index}")
    names = [f"{stem}-{number}.{domain}".rstrip(".") for number in range(num_nodes)]
    return (first or names[0], *names[1:])


def _number(variables: Mapping[str, str], name: str) -> int:
    text = variables[name]
    if not text.isdecimal():
        raise bad_variable(name, text, "a number")
    return int(text)
