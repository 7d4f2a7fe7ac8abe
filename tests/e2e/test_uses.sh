#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The rule of 'Pinpointing' on perceptrons of H hidden units, two features and two classes: each input has 2H + 4 floats of
# intermediates (the hidden layer, the scores, and both their gradients), two of features, a label; each parameter has
# a gradient, which is an intermediate; and there is the loss.
. "$(dirname "$0")/lib.sh"

uses_of() { # INPUTS HIDDEN
    "$EBB" train "perceptron:$2" --batch "$1" --steps 2 --classes 2 --image 1x2 --channels 1 --optimizer sgd --no-eval \
        --backend dry --record trace >out 2>err || cat err
    "$EBB" report trace --json | python3 -c '
import json, sys
uses = {share["use"]: share["bytes"] for share in json.load(sys.stdin)["uses_static"]}
print(*[uses.get(use, 0) for use in ("input", "parameter", "intermediate", "unknown")])'
}

for case in "400 3" "3200 24" "25600 12288"; do
    set -- $case
    parameters=$((4 * (5 * $2 + 2)))
    equal "perceptron, $1 x $2" "$(uses_of "$1" "$2")" \
        "$((12 * $1)) $parameters $((4 * $1 * (2 * $2 + 4) + parameters + 8)) 0"
done
exit $status
