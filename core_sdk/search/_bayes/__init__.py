"""Points of a space that a model of the results so far chooses (the sampler `bayes`).

The model is a Bayesian linear regression on quadratic features, and Thompson sampling chooses by it: a function is
drawn from the posterior, and the next trial is where this function is best. A draw explores as much as the model is
unsure, and trials that are chosen at the same time differ without knowing of each other (Russo et al. 2018, "A tutorial
on Thompson sampling"; Baptista and Poloczek 2018, BOCS, for quadratic features; Kandasamy et al. 2018 for parallel
trials). Results of all rungs count at once, since the distance to the top rung is a feature, too: a model of the lowest
rung alone, as in BOHB (Falkner et al. 2018), finds what is best after few epochs.

It uses only +, -, *, / and square roots, in a fixed order, so that every machine and every Python decides the same. A
search is replayed from its events by whichever version continues it: rules that decide otherwise need another name
for `sampler`.
"""

from core_sdk.search._bayes._points import ModelledPoints
