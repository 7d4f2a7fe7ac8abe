# SPDX-License-Identifier: Apache-2.0
"""Where a row of a result comes from: the commit and the machine."""
import os
import platform
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.machine()


def commit():
    result = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty"], stdout=subprocess.PIPE, text=True)
    return result.stdout.strip()
