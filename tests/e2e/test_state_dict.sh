#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Weights to torchvision's networks and back; left out where no Python with torch and torchvision is found. PYTHON
# names one (Debian: python3-torch, python3-torchvision), NETS networks, or "all" that are looked at.
. "$(dirname "$0")/lib.sh"
machine
for python in ${PYTHON:-} /usr/bin/python3 python3; do
    "$python" -c 'import torch, torchvision, numpy' 2>/dev/null || continue
    # shellcheck disable=SC2086
    "$python" "$root/tests/e2e/state_dict.py" "$EBB" "$work" ${NETS:-}
    exit $?
done
skip "weights of torchvision" "no Python with torch and torchvision"
exit 77
