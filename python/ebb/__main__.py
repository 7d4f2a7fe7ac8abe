# SPDX-License-Identifier: Apache-2.0
"""`python -m ebb`: the program ebb, which lies in the wheel, or in the build of the source tree, or in PATH."""
import os
import shutil
import sys


def program():
    """Where the program is; None: nowhere."""
    here = os.path.dirname(os.path.abspath(__file__))
    places = (os.path.join(here, "lib", "ebb"), os.path.join(here, "..", "..", "build", "release", "ebb"),
              os.path.join(here, "..", "..", "..", "..", "bin", "ebb"))  # wheel, source tree, installed
    return next((place for place in places if os.access(place, os.X_OK)), None)


def main():
    found = program()
    if found is None:
        mine = os.path.realpath(sys.argv[0])
        found = next((place for folder in os.get_exec_path() for place in [shutil.which("ebb", path=folder)]
                      if place is not None and os.path.realpath(place) != mine), None)
    if found is None:
        sys.exit("ebb: the program ebb is not found: install the wheel, build it with make, or put it into PATH")
    os.execv(found, [found, *sys.argv[1:]])


if __name__ == "__main__":
    main()
