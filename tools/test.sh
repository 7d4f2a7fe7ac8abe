#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# From a bare Debian 12 with git and a shell to the tests' result: installs what is missing, says what, then runs
# `make test`. The last line is the count of tests; the exit status is not 0 when one failed.
set -eu
cd "$(dirname "$0")/.."
. tools/lib/setup.sh
setup $setup_test_packages
setup_optional $setup_browser_packages
setup_digits || say "the digits could not be had; tests that need them are skipped"
exec make -s test
