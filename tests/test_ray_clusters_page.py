"""The manifests of docs/ray-clusters.md are what KubeRay and `ray up` take."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from frameworks.environments import environment
from parts import needs

PAGE = Path(__file__).parent.parent / "docs" / "ray-clusters.md"

# The fields of KubeRay's RayCluster, version v1, by the place where they stand; those with a star are required.
FIELDS = {
    "spec": "headGroupSpec* workerGroupSpecs rayVersion enableInTreeAutoscaling autoscalerOptions "
    "headServiceAnnotations suspend managedBy gcsFaultToleranceOptions",
    "autoscaler": "resources image imagePullPolicy env envFrom volumeMounts securityContext idleTimeoutSeconds "
    "upscalingMode version",
    "head": "serviceType headService enableIngress rayStartParams* template*",
    "worker": "groupName* replicas minReplicas* maxReplicas* numOfHosts rayStartParams* template* scaleStrategy "
    "suspend",
}


def manifests() -> list[list[dict[str, Any]]]:
    """Returns the documents of each manifest on the page."""
    return [list(yaml.safe_load_all(text)) for text in re.findall(r"^```\n(.*?)^```$", PAGE.read_text(), re.M | re.S)]


def check(place: str, given: Mapping[str, Any]) -> None:
    fields = FIELDS[place].split()
    assert given.keys() <= {field.rstrip("*") for field in fields}, place
    assert given.keys() >= {field[:-1] for field in fields if field.endswith("*")}, place


def pods(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        yield group["template"]["spec"]


def test_the_manifest_for_kubernetes_has_the_fields_of_kuberay() -> None:
    """Each field is one of KubeRay's, all required ones are there, and the pods mount only volumes that they have."""
    [claim, cluster], _ = manifests()

    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    spec = cluster["spec"]
    check("spec", spec)
    check("autoscaler", spec["autoscalerOptions"])
    check("head", spec["headGroupSpec"])
    for worker in spec["workerGroupSpecs"]:
        check("worker", worker)
        assert worker["minReplicas"] <= worker["replicas"] <= worker["maxReplicas"]
    for pod in pods(spec):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        claimed = [
            volume["persistentVolumeClaim"]["claimName"]
            for volume in volumes.values()
            if len(volume) > 1 and "persistentVolumeClaim" in volume
        ]
        assert set(claimed) <= {claim["metadata"]["name"]}
        for container in pod["containers"]:
            assert container["image"]
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()


@needs("ray")
def test_the_file_for_ray_up_fits_rays_own_schema() -> None:
    """Ray's JSON schema of `ray up` accepts the file, and its head is one of its kinds of nodes."""
    jsonschema = pytest.importorskip("jsonschema")
    _, [config] = manifests()
    [schema] = environment("ray").python.parent.parent.glob("lib/python*/site-packages/ray/autoscaler/ray-schema.json")

    jsonschema.validate(config, json.loads(schema.read_text()))

    assert config["head_node_type"] in config["available_node_types"]
