# SPDX-License-Identifier: Apache-2.0
"""`python -m ebb`: the program ebb, which lies in the wheel, or in the build of the source tree, or in PATH."""
import os
import sys


def program():
    """Where the program is; None: nowhere."""
    here = os.path.dirname(os.path.abspath(__file__))
    places = (os.path.join(here, "lib", "ebb"), os.path.join(here, "..", "..", "build", "release", "ebb"),
              os.path.join(here, "..", "..", "..", "..", "bin", "ebb"))  # wheel, source tree, installed
    return next((place for place in places if is_program(place)), None)


def is_program(path):
    """Not the script that calls this one: pip puts it where an installed program would be."""
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def main():
    found = program()
    if found is None:
        found = next((os.path.join(folder, "ebb") for folder in os.get_exec_path()
                      if is_program(os.path.join(folder, "ebb"))), None)
    if found is None:
        sys.exit("ebb: the program ebb is not found: install the wheel, build it with make, or put it into PATH")
    os.execv(found, [found, *sys.argv[1:]])


if __name__ == "__main__":
    main()
