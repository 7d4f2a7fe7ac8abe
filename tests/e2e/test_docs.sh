#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The documents: links lead somewhere, and every option that the README names is one.
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

for page in *.md docs/*.md; do
    broken=
    for link in $(grep -o ']([^):#]*[):#]' "$page" | sed -n 's/^](\(.*\))$/\1/p'); do
        [ -e "$(dirname "$page")/$link" ] || broken="$broken $link"
    done
    equal "links of $page" "$broken" ""
done

for command in $("$EBB" help | sed -n 's/^  \([a-z]*\) .*/\1/p' | grep -vE '^(help|version)$'); do
    "$EBB" help "$command"
done >"$work/help"
unknown=
for option in $(grep -E '^ *(build/release/)?ebb |^ +--|`--' README.md | grep -oE -- '--[a-z][a-z-]*' | sort -u); do
    grep -qE -- "^  $option( |$)" "$work/help" || unknown="$unknown $option"
done
equal "options that the README names" "$unknown" ""
exit $status
