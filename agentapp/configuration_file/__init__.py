"""The configuration as one YAML file: loaded as a whole or not at all, and written back the same.

`docs/configuration.md` describes the file. Its shape is in `shape`; what a file leaves out stays unchanged.
"""

from agentapp.configuration_file.checking import Problem
from agentapp.configuration_file.dumping import dump
from agentapp.configuration_file.loading import ConfigurationRefused, load

__all__ = ["ConfigurationRefused", "Problem", "dump", "load"]
