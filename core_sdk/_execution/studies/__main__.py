"""`python -m core_sdk._execution.studies`: serves the line of tries of the home that the environment names."""

from core_sdk._execution.studies._serving import serve
from core_sdk._ground.environment import Environment
from core_sdk._home import Home

if __name__ == "__main__":
    serve(Home.open(Environment.read().home))
