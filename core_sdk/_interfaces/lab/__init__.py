"""The server of a lab: one process over one folder of homes, for 5 to 50 people.

A workspace is a home. Who asks is found once, at the door, by a token, a session, a link or the header of a proxy; what
they may do there follows from their role in the workspace. Below the door there are no permissions: each workspace is
served by the same application that `core-sdk ui` serves. The door answers nothing that its table of routes does not
name.

What people may do lies in `people.json`, which is replaced as a whole, and read again when it has changed. So commands
and the server need not talk to each other, and whatever a command revokes has ended within a second.
"""
