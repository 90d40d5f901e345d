"""The master: the process that carries out the experiments of one home, on the slots of its machine.

It holds the home's `master.lock`, listens on `master.sock`, and can be killed at any moment: what it decided is in the
experiments' journals of events, trials go on under their agents, and the next master takes up both.
"""
