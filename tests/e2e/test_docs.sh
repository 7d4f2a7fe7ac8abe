#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The documents: links lead somewhere, and every option that the README names is one.
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

links=
for page in *.md docs/*.md; do
    broken=
    for link in $(grep -o ']([^):#]*[):#]' "$page" | sed -n 's/^](\(.*\))$/\1/p'); do
        links="$links $link"
        [ -e "$(dirname "$page")/$link" ] || broken="$broken $link"
    done
    empty "links of $page" "$broken"
done
some "links" $links

for command in $("$EBB" help | sed -n 's/^  \([a-z]*\) .*/\1/p' | grep -vE '^(help|version)$'); do
    "$EBB" help "$command"
done >"$work/help"
unknown=
options=$(grep -E '^ *(build/release/)?ebb |^ +--|`--' README.md | grep -oE -- '--[a-z][a-z-]*' | sort -u)
some "options that the README names" $options
for option in $options; do
    grep -qE -- "^  $option( |$)" "$work/help" || unknown="$unknown $option"
done
empty "options that the README names" "$unknown"
exit $status
