"""The interval between checkpoints that costs the least time.

J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer
Systems 22 (2006) 303-312, doi:10.1016/j.future.2004.11.016. Its first term is that of J. W. Young, "A
first order approximation to the optimum checkpoint interval", Communications of the ACM 17 (1974) 530-531,
doi:10.1145/361147.361115.
"""

from __future__ import annotations

import math


def best_interval(save_s: float, failure_s: float) -> float:
    """Returns the seconds of training between two saves that lose the least time to saves and failures.

    A save holds up the training for `save_s`, and on average a failure comes after `failure_s`.
    """
    if save_s >= 2 * failure_s:
        return failure_s
    share = save_s / (2 * failure_s)
    return math.sqrt(2 * save_s * failure_s) * (1 + math.sqrt(share) / 3 + share / 9) - save_s


def cost_share(interval_s: float, save_s: float, failure_s: float, restart_s: float = 0.0) -> float:
    """Returns the share of the time that saves, repeated work and restarts take, if failures come at random.

    It is Daly's model of the whole time with exponentially distributed times between failures.
    """
    segments = math.expm1((interval_s + save_s) / failure_s)
    return 1 - interval_s / (failure_s * math.exp(restart_s / failure_s) * segments)
