#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Man pages, completion and suggestions come from the tables that --help comes from, and outputs are called what they are.
. "$(dirname "$0")/lib.sh"

commands=$("$EBB" help | sed -n 's/^  \([a-z]*\) .*/\1/p' | grep -vE '^(help|version)$')
some "commands" $commands
for shell in bash zsh fish; do run "$shell" completion.$shell help --completion $shell; done
check "bash reads its completion" bash -n completion.bash
run "man of all" ebb.1 help --man
missing=
for command in $commands; do
    run "help" help help "$command"
    run "man" "ebb-$command.1" help --man "$command"
    grep -qF "ebb $command" ebb.1 || missing="$missing ebb.1:$command"
    sed "s/\\\\-/-/g; s/\\\\(aq/'/g" "ebb-$command.1" >page
    sed -n "/^    \*:$command)/,/^        ;;/p" completion.bash >in_bash
    sed -n "/^  $command)/,/^    ;;/p" completion.zsh >in_zsh
    options=$(sed -n 's/^  \(--*[a-z][a-z0-9-]*\) .*/\1/p' help | sort -u)
    some "options of $command" $options
    for option in $options; do
        grep -qF -- "\\fB$option\\fR" page || missing="$missing man:$command:$option"
        grep -qE -- "[ ']$option[ ']" in_bash || missing="$missing bash:$command:$option"
        grep -qF -- "'$option[" in_zsh || missing="$missing zsh:$command:$option"
        grep -qE -- "from $command' -(l|s) ${option##*-}|from $command' -l ${option#--}( |$)" completion.fish ||
            missing="$missing fish:$command:$option"
    done
    check "the page of $command says what it is" grep -qF "$("$EBB" help "$command" | sed -n 3p)" page
done
empty "every option of --help is in man and completion" "$missing"

if command -v groff >/dev/null && groff -man -Tutf8 ebb.1 >out 2>err && [ -s out ]; then
    warnings=
    for page in *.1; do warnings=$warnings$(groff -man -ww -Tutf8 "$page" 2>&1 >/dev/null); done
    empty "man has no warnings" "$warnings"
else
    skip "man has no warnings" "there is no groff"
fi
if command -v mandoc >/dev/null; then
    empty "nor has mandoc" "$(mandoc -T lint -W warning ./*.1 2>&1 | grep -v 'missing date')"
else
    skip "nor has mandoc" "there is none"
fi

# completes WORDS... : what bash offers for the last of the words
completes() {
    bash -c '. ./completion.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ebb; echo "${COMPREPLY[*]}"' bash "$@"
}
equal "commands are completed" "$(completes ebb tr)" train
equal "options are completed" "$(completes ebb train lenet --chec)" "--checkpoint --checkpoint-every"
equal "networks are completed" "$(completes ebb plan dense)" densenet121
equal "policies are completed" "$(completes ebb plan lenet --policy li)" liveness
check "solvers are completed" test "$(completes ebb place x --solver best | wc -w)" -ge 2
empty "files are the shell's" "$(completes ebb report fo)"
complains "another shell" 2 "takes bash, zsh or fish" help --completion csh
complains "a page of no command" 2 "there is no command foo" help --man foo

says "a mistyped option" 2 "ebb: train: there is no option --memry; near it: --memory; see ebb train --help" train lenet --memry 1
says "two are near" 2 "ebb: train: there is no option --epoch; near it: --epochs; see ebb train --help" train lenet --epoch=3
says "a mistyped command" 2 "ebb: there is no command trian; near it: train; see ebb help" trian
says "also for help" 2 "ebb: there is no command repor; near it: report; see ebb help" help repor
says "the beginning of a command" 2 "ebb: there is no command rep; near it: report; see ebb help" rep
says "help mistyped" 2 "ebb: there is no command --hlep; near it: --help; see ebb help" --hlep
says "help of a command mistyped" 2 "ebb: plan: there is no option --hlep; near it: --help; see ebb plan --help" plan --hlep
says "the beginning of an option" 2 "ebb: train: there is no option --optim; near it: --optimizer; see ebb train --help" \
    train lenet --optim sgd
says "a mistyped solver" 2 "ebb: place: there is no solver bset; near it: best; see ebb place --help" place x --solver bset
says "a mistyped format" 2 "ebb: import: there is no format snapshto; near it: snapshot; see ebb import --help" \
    import x -o y --format snapshto
says "policies of one" 2 "ebb: compare: there is no option --policy; near it: --policies; see ebb compare --help" \
    compare lenet --policy best
complains "a mistyped policy" 2 "no policy is called .budgt.; near it: budget$" \
    plan lenet --backend dry --policy budgt
says "a mistyped way" 2 "ebb: no way to choose algorithms is called 'fast'; near it: fastest" \
    plan lenet --backend dry --algorithms fast
says "nothing is near" 2 "ebb: plan: there is no option --zzzzz; see ebb plan --help" plan lenet --zzzzz
says "a letter is near to nothing" 2 "ebb: plan: there is no option -q; see ebb plan --help" plan lenet -q

also=" (also: --text, --json, --perfetto OUT.json, --memory-viz OUT.pickle)"
says "a page that is a picture" 2 "ebb: report: -o does not write .pdf: it writes a file that ends in html, htm$also" \
    report completion.bash -o out.pdf
complains "events that are a page" 2 "perfetto does not write .html: .* json" report x --perfetto x.html
complains "a viewer's file that is none" 2 "memory-viz does not write .json: .* pickle, pkl" report x --memory-viz x.json
complains "a picture of another kind" 2 "svg does not write .png: .* svg" place x --svg x.png
complains "offsets as a picture" 2 "-o does not write .svg: .* csv .a picture: --svg OUT.svg" place x -o x.svg
complains "weights of PyTorch's" 2 "save does not write .pt: .* safetensors" train mlp --save w.pt
complains "a plan as a document" 2 "plan: -o does not write .pdf: it writes a plan, as in OUT.plan" plan mlp -o p.pdf
complains "a program as a plan" 2 "program-out does not write .plan: .* a program" plan mlp --program-out x.plan
complains "a trace as a page" 2 "import: -o does not write .html: .* a trace or a program" import x -o x.html
complains "a recording as a page" 2 "record: -o does not write .html: .* a trace" record -o x.html -- true
complains "a step's recording as a page" 2 "train: --record does not write .html: .* a trace" train mlp --record x.html
complains "a checkpoint of PyTorch's" 2 "checkpoint does not write .pt: .* a checkpoint" train mlp --checkpoint c.pt
complains "a machine as a table" 2 "probe: -o does not write .csv: .* a machine's description" probe -o m.csv
for name in p.txt p p.2 .pdf; do
    equal "a plan in $name" "$("$EBB" plan mlp -o $name >/dev/null 2>err; echo $?)" 0
done
complains "gradients too" 2 "save-gradients does not write .npz" train mlp --save-gradients w.npz
printf 'id,lower,upper,size\na,0,2,64\n' >buffers.csv
run "an ending in capitals" out place buffers.csv --svg OUT.SVG && check "an ending in capitals" test -s OUT.SVG
run "a name without one" out place buffers.csv -o placed && check "a name without one" test -s placed
exit $status
