"""The stall watch of an agent: it notices ranks that give no sign of life, and says which one stands where.

`_watching` looks, `_stacks` asks the processes where they stand, and `_diagnosis` puts that into words.
"""

from core_sdk._execution.agent.stalls._watching import StallWatch
