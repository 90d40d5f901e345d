"""The runtime: all that a training needs on one rank, in any loop and under any launcher.

It owns the ranks and the device, the strategy by which ranks train a model together, precision, the accumulation of
gradients, the stop flag, the choice of the best checkpoints, and the state of all wrapped objects. `core_sdk.pytorch`,
`core_sdk.train` and `core_sdk.sgd` are shapes over it.
"""
