"""Requests to a trial of a workspace, which the home that has sent the trial carries out.

The server keeps the request, the pusher of the home fetches it with its next sign of life, does it by the home's own
records, and tells what came of it. So the server runs nothing, and nothing listens where trainings run.

- `asker`: the person or program that asks the server.
- `requesting`: keeps requests in a workspace, and gives them to their homes.
- `signs`: the signs of life of a pusher, which bring them.
- `acting`: does them in the home, each at most once.
"""
