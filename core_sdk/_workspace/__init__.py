"""Records in a workspace, which is a home on a lab's server: sent there by HTTP, whatever is down meanwhile.

A training records into its own home, and knows nothing of this. A pusher reads that home as any reader does, and sends
bytes of its files by trial, name, offset and checksum. The server writes and fsyncs them before it answers. The size of
its file is the acknowledgement, as between a spool and a home: whatever is killed, the next pusher continues at that
size.

- `files`: which files of a trial are sent, and how.
- `wire`: what both sides say to each other.
- `numbering`: which trial of the workspace a trial of another home is. A copied home is told apart here.
- `receiving`: writes what arrives into the workspace.
- `presence`: has trials that run elsewhere count as running there.
- `routes`: its doors, for Starlette. They know nothing of people and tokens.
- `connection`: the sending side of the doors.
- `pushing`: sends the trials of a home, as they are now.
- `searches`: sends the searches to which they belong. Nobody carries them out where they arrive.
- `sending`: the files of both on their way.
- `questions`: what can be asked of a workspace: the questions of a view of a home.
- `asking`: a view of a workspace, which asks its server.
- `following`: does so while they are recorded. The program of a pusher is `core_sdk._execution.steering`.
- `actions`: what people ask of a trial or an experiment, and its home does.
"""
