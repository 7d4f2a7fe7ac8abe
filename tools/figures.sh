#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Makes every picture of docs/images: the figures of docs/behaviours.md and the screenshots of a report on ebb's own
# ResNet-50. Installs what they need by package name, then takes some minutes. A folder as argument: there instead.
set -eu
cd "$(dirname "$0")/.."
. tools/lib/setup.sh
setup python3-matplotlib $setup_browser_packages
[ -x build/release/ebb ] || make -s
ebb=${EBB:-build/release/ebb}
images=${1:-docs/images}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$images"
/usr/bin/python3 bench/figures.py --ebb "$ebb" -o "$images"
OMP_WAIT_POLICY=passive "$ebb" train resnet50 --batch 4 --image 128x128 --steps 4 --record-steps 3 \
    --record "$work/resnet50.trace" >"$work/log"
"$ebb" report "$work/resnet50.trace" -o "$work/resnet50.html"
/usr/bin/python3 tests/e2e/report_page.py --shots "$images" "$work/resnet50.html"
