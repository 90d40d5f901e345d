"""What people ask of a trial in a workspace, and the home that has sent the trial does.

The server keeps the request, the pusher of the home fetches it with its next sign of life, does it by the home's own
records, and tells what came of it. So the server runs nothing, and nothing listens where trainings run.

- `asker`: who asks the present request to the server.
- `requesting`: keeps requests in a workspace, and gives them to their homes.
- `signs`: the signs of life of a pusher, which bring them.
- `acting`: does them in the home, each at most once.
"""
