# SPDX-License-Identifier: Apache-2.0
"""Prints the version of this Python's torch, without the seconds that importing it takes; fails where there is none."""
import importlib.util
import os
import runpy

spec = importlib.util.find_spec("torch")
folder = spec.submodule_search_locations[0]
print(runpy.run_path(os.path.join(folder, "version.py"))["__version__"])
