# SPDX-License-Identifier: Apache-2.0
"""Where a row of a result comes from: the commit, the machine and its card."""
import csv
import os
import platform
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.machine()


def commit(build=None):
    """The tree's by git; without git what tools/pack-cuda wrote into the build's folder, or "unknown"."""
    try:
        result = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty"], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True)
        found = result.stdout.strip()
    except OSError:
        found = ""
    if not found and build:
        try:
            with open(os.path.join(build, "commit"), encoding="utf-8") as file:
                found = file.read().strip()
        except OSError:
            pass
    return found or "unknown"


def driver():
    """The version of the NVIDIA driver, or nothing."""
    try:
        result = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return ""
    return f", driver {result.stdout.splitlines()[0].strip()}" if result.returncode == 0 and result.stdout else ""


def written(path, columns, rows):
    """Write rows as CSV, the commit and the processor before each, and yield each once it is written; no path: on stdout."""
    known = [commit(), processor()]
    with open(path, "w", newline="", encoding="utf-8") if path else sys.stdout as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in rows:
            writer.writerow([*known, *row])
            file.flush()
            yield row
