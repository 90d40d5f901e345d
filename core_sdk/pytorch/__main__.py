"""`python -m core_sdk.pytorch module:Class` trains a Trial class as its experiment's configuration says."""

from __future__ import annotations

import argparse
import sys

from core_sdk.pytorch._harness import train
from core_sdk.pytorch._trial_class import TrialClassError


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m core_sdk.pytorch", description=__doc__)
    parser.add_argument("trial_class", metavar="MODULE:CLASS", help="such as model_def:MyTrial")
    try:
        train(parser.parse_args().trial_class)
    except TrialClassError as error:
        sys.exit(f"core_sdk.pytorch: {error}")


if __name__ == "__main__":
    main()
