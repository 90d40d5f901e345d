"""The verbs of the tracker: all that a person can do to trials, experiments, checkpoints and models.

Each verb stands here once, with its checks, its effect and its errors. The commands, the client and the web page's
server are doors to it. `by` names the door: it is recorded with a stop, and listed as its reason.
"""
