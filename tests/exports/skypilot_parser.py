"""Run apart: SkyPilot of the folder given reads the task files given, a line for each.

It keeps files of its own in the home directory and would report its use: the caller gives it an
empty home.
"""

import json
import os
import sys

os.environ["SKYPILOT_DISABLE_USAGE_COLLECTION"] = "1"
sys.path.insert(0, sys.argv[1])
from sky import exceptions, task


def said(path):
    """What the task says, or the error that it is refused with."""
    try:
        read = task.Task.from_yaml(path)
    except (ValueError, exceptions.InvalidSkyPilotConfigError) as error:
        return {"error": str(error)}
    wanted = next(iter(read.resources))
    return {
        "num_nodes": read.num_nodes,
        "accelerators": wanted.accelerators,
        "workdir": read.workdir,
        "envs": read.envs,
        "run": read.run,
    }


for path in sys.argv[2:]:
    sys.stdout.write(json.dumps(said(path)) + "\n")
