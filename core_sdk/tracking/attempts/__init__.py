"""The life of an attempt: how a trial is begun, resumed, continued and restarted, whoever starts it.

- `starting`: `begin`, `resume` and `continue_from` give a `Start`, from which an agent starts a command.
- `running`, `ending`: what those who have not started an attempt can learn of it.
- `killing`, `leftovers`: how they kill it, also what a killed agent has left of it.
- `operations`: the lengths to which a search wants a trial to be trained.
- `claiming`: a script's `init()` claims the attempt that it executes, or begins a trial of its own.
- `restarts`, `jobs`: a launcher or a scheduler has started the ranks again, and they go on with their trial.
- `continuation`: the checkpoint from which a trial goes on.
- `run_info`: what an attempt's script is told.
"""
