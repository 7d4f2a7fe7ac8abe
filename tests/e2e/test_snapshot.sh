#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Memory snapshots of PyTorch: of each generation of the format, what ebb reads is what an independent reader in Python
# finds in the same file; and no pickle runs anything. SNAPSHOTS names a folder with others, such as real ones;
# LARGE=1000000000 tries a snapshot of so many bytes, and says its time and memory.
. "$(dirname "$0")/lib.sh"
here=$root/tests/e2e

# agrees NAME FILE DEVICE: DEVICE may be empty, for the one with most events.
agrees() {
    python3 "$here/read_snapshot.py" "$2" $3 >expected 2>&1
    run "$1" out import "$2" -o trace ${3:+--device "$3"} || return
    python3 "$here/read_trace.py" trace >got 2>&1
    equal "$1" "$(cat got)" "$(cat expected)"
}

python3 "$here/make_snapshot.py" snapshots || exit 1
for file in snapshots/*.pickle ${SNAPSHOTS:+"$SNAPSHOTS"/*.pickle}; do agrees "$(basename "$file" .pickle)" "$file" ""; done
for device in 0 1 2; do
    agrees "device $device" snapshots/devices.pickle $device
    agrees "device $device of a program in C++" snapshots/jit_devices.pickle $device
done
python3 "$here/make_snapshot.py" others --seed 2 || exit 1
for name in history ring expandable; do agrees "$name, other sizes" others/$name.pickle ""; done
gzip -k snapshots/contexts.pickle
agrees_zipped() {
    python3 "$here/read_snapshot.py" snapshots/contexts.pickle >expected
    run "a zipped one" out import snapshots/contexts.pickle.gz -o trace || return
    python3 "$here/read_trace.py" trace >got
    equal "a zipped one" "$(cat got)" "$(cat expected)"
}
agrees_zipped

# again NAME FILE: what --memory-viz makes of it is a snapshot that says the same.
again() {
    run "$1, for the viewer" out report "$2" --memory-viz viewer.pickle || return
    python3 "$here/read_snapshot.py" "$2" >expected
    python3 "$here/read_snapshot.py" viewer.pickle "$(sed -n 's/^device //p' expected)" >got 2>&1
    equal "$1, for the viewer" "$(cat got)" "$(cat expected)"
}
for name in list history jit extras ring expandable devices state; do again $name snapshots/$name.pickle; done
run "a recording for the viewer" out train mlp --steps 3 --record own.trace --record-steps 2 &&
    run "a recording for the viewer" out report own.trace --memory-viz own.pickle &&
    run "a recording for the viewer" out import own.pickle -o again.trace && {
    python3 "$here/read_snapshot.py" own.pickle >expected
    python3 "$here/read_trace.py" again.trace >got
    equal "a recording for the viewer" "$(grep -v frames got)" "$(grep -v frames expected)"
}

complains "no such device" 2 'there is no device 3, but those from 0 to 2' import snapshots/devices.pickle -o no --device 3
complains "the processor" 2 'has no blocks of the processor' import snapshots/devices.pickle -o no --device cpu
head -c 5000 snapshots/contexts.pickle >cut.pickle
complains "one that is cut off" 3 'cut.pickle: offset 5000: the pickle is cut off here' import cut.pickle -o no
python3 -c '
import pickle
class Evil:
    def __reduce__(self):
        return print, ("code has run",)
pickle.dump({"segments": [], "device_traces": [[Evil()]]}, open("evil4.pickle", "wb"), protocol=4)
pickle.dump({"segments": [], "device_traces": [[Evil()]]}, open("evil2.pickle", "wb"), protocol=2)
pickle.dump({"weights": [1, 2, 3]}, open("other.pickle", "wb"))
pickle.dump({"segments": []}, open("old.pickle", "wb"), protocol=0)'
complains "code in protocol 4" 3 'evil4.pickle: offset [0-9]*: the opcode STACK_GLOBAL names code' import evil4.pickle -o no
complains "code in protocol 2" 3 'evil2.pickle: offset [0-9]*: the opcode GLOBAL names code' import evil2.pickle -o no
complains "another pickle" 3 'other.pickle: a pickle, but no memory snapshot of PyTorch' import other.pickle -o no
check "nothing is left of failures" [ ! -e no ]

if [ -n "$LARGE" ]; then
    python3 "$here/make_snapshot.py" large.pickle --bytes "$LARGE" >facts
    /usr/bin/time -f "%e s, %U s of the processor, %M KiB" "$EBB" import large.pickle -o trace >out 2>err
    echo "large: $(cat facts): $(tail -n 1 err)"
    python3 "$here/read_trace.py" trace >got
    equal "the large one" "$(sed -n 's/^peak //p' got) $(sed -n 's/^live //p' got)" \
        "$(sed 's/.* peak \([0-9]*\) live \([0-9]*\).*/\1 \2/' facts)"
fi
exit $status
