#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# From a bare Debian 12 with git and a shell to a network trained inside a memory budget: installs what is
# missing, says what, then runs `make demo`.
set -eu
cd "$(dirname "$0")/.."
. tools/lib/setup.sh
setup
setup_digits || die "the digits could not be had"
exec make -s demo
