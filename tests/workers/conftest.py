"""The engines that the tests of worker groups run on."""

from __future__ import annotations

from workers.engines import dying_ray, programs, ray_address, two_ray_nodes

__all__ = ["dying_ray", "programs", "ray_address", "two_ray_nodes"]
