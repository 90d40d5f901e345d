"""The life of an attempt: how a trial is begun, resumed, continued and restarted.

- `starting`: `begin`, `resume` and `continue_from` give an `AttemptStart`, from which an agent starts a command.
- `running`, `ending`: how other processes wait for an attempt, and read its end.
- `killing`, `leftovers`: how other processes kill it, including the processes that a killed agent has left.
- `operations`: the lengths to which a search wants a trial to be trained.
- `claiming`: a script's `init()` claims the attempt that it executes, or begins a trial of its own.
- `restarts`, `jobs`: a launcher or a scheduler has started the ranks again, and they go on with their trial.
- `setbacks`: how it goes on after a guard has found trouble.
- `continuation`: the checkpoint from which a trial goes on.
- `run_info`: the run info that an attempt's script gets.
"""
