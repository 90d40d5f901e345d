"""The configuration of an experiment: a YAML file, and its checked values with all defaults.

`load` reads a file; `to_yaml` writes the complete configuration, which loads as the same one. The types are public in
`experiment`, `searchers`, `hyperparameters` and `lengths`, and docs/configuration.md is made from them.

A file is first composed as nodes of YAML, which know their lines, and becomes plain values with the place of each.
These are then read section by section, so that one attempt reports all problems, each with its line. Rules that concern
several fields are checked once each field is valid by itself.
"""

from core_sdk._ground.config._document import parse_value
from core_sdk._ground.config._loading import Loaded, from_mapping, load
from core_sdk._ground.config._writing import masked, to_mapping, to_yaml
from core_sdk._ground.config.entrypoint import command_of, entrypoint_argv
from core_sdk._ground.config.experiment import ExperimentConfig, RayOptions, Resources
