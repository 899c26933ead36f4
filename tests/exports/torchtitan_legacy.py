"""Run apart: torchtitan 0.2.2 of the folder given reads the TOML files given, a line for each."""

import dataclasses
import json
import sys

sys.path.insert(0, sys.argv[1])
from torchtitan.config.manager import ConfigManager

for path in sys.argv[2:]:
    config = ConfigManager().parse_args([f"--job.config-file={path}"])
    sys.stdout.write(json.dumps(dataclasses.asdict(config.parallelism)) + "\n")
