#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# From a bare Debian 12 with git and a shell to the tests' result: installs what is missing and says what, then runs
# the tests. `tools/test.sh` runs what every change should pass; `tools/test.sh all` adds what takes longer (clang, the
# thread sanitizer, long forms), and continuous integration runs that. The last line is the count of tests; the exit
# status is 0 only if all passed.
set -eu
cd "$(dirname "$0")/.."
case ${1:-} in
'' | all) ;;
*)
    echo "usage: tools/test.sh [all]" >&2
    exit 2
    ;;
esac
. tools/lib/setup.sh
setup $setup_test_packages
setup_optional $setup_browser_packages
setup_digits || say "the digits could not be had; tests that need them are skipped"
exec tools/test-suite "$@"
