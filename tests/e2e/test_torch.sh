#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Loss and gradients beside PyTorch's; left out where no Python with torch and torchvision is found. PYTHON names
# one (Debian: python3-torch, python3-torchvision). NETS names networks, or "all" of the zoo; without it one or two
# of each family are compared, in about half the time of all. ON, as in "--backend cuda", says where.
. "$(dirname "$0")/lib.sh"
for python in ${PYTHON:-} /usr/bin/python3 python3; do
    "$python" -c 'import torch, torchvision, numpy' 2>/dev/null || continue
    "$python" "$root/tests/e2e/torch_compare.py" "$EBB" "$work" ${NETS:-quick}
    exit $?
done
skip "beside PyTorch" "no Python with torch and torchvision"
exit 77
