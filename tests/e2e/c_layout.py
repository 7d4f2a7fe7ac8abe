#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The structs and constants of python/ebb are those of the public headers, as a C compiler lays them out.

    tests/e2e/c_layout.py INCLUDE      prints a line for each that is not; exits with 1 then, with 2 if nothing compiles

Of each struct: its size, of each field its offset, its size, and whether it is an integer, a floating-point number or a
string. A field that the headers have and Python does not, even one in padding, does not compile: a struct is also
initialized with one value for each field of Python's, which a compiler is told to take for an error if one is missing.
"""
import ctypes
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

from ebb import _lib, planning, trace

KEYWORDS = {"into": "in"}  # of Python's, which no field of it can be called
KIND = "_Generic({}, double: 'f', const char *: 's', default: 'i')"


def c_name(words):
    return "ebb_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", words).lower()


def structs():
    return {c_name(name): kind for name, kind in vars(_lib).items()
            if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind is not ctypes.Structure}


def kind_of(field):
    if issubclass(field, (ctypes.Structure, ctypes.Array)):
        return None
    return "f" if field is ctypes.c_double else "s" if field is ctypes.c_char_p else "i"


def constants():
    """{in C: in Python}"""
    found = {"EBB_MAX_TIERS": _lib.MAX_TIERS, "EBB_MAX_ENGINES": _lib.MAX_ENGINES, "EBB_NAME_BYTES": _lib.NAME_BYTES,
             "EBB_OK": _lib.OK, "EBB_E_NO_FIT": _lib.E_NO_FIT, "UINT64_MAX": planning.NO_LIMIT}
    for prefix, module, names in (
            ("EBB_ACT_", planning, ("RUN", "AGAIN", "OUT", "IN", "MOVE", "DROP")),
            ("EBB_REPEAT_", planning, ("EXACT", "OTHER_BITS", "NEVER")), ("EBB_", planning, ("READ", "WRITE", "UPDATE")),
            ("EBB_", planning, ("DEVICE", "HOST", "DISK")), ("EBB_ROLE_", trace, [role.upper() for role in trace.ROLES]),
            ("EBB_PHASE_", trace, ("FORWARD", "BACKWARD", "UPDATE"))):
        found.update((prefix + name, getattr(module, name)) for name in names)
    found["EBB_N_ROLES"], found["EBB_PHASE_UNKNOWN"] = len(trace.ROLES), trace.NO_PHASE
    return found


def expected():
    """[(a name, a C expression, the number that Python takes for it)]"""
    for name, kind in structs().items():
        yield name, f"sizeof({name})", ctypes.sizeof(kind)
        for field, its_kind in kind._fields_:
            member, place = f"{name}.{KEYWORDS.get(field, field)}", getattr(kind, field)
            of = f"(({name} *)0)->{KEYWORDS.get(field, field)}"
            yield f"{member}, its offset", f"offsetof({name}, {KEYWORDS.get(field, field)})", place.offset
            yield f"{member}, its size", f"sizeof({of})", place.size
            if kind_of(its_kind):
                yield f"{member}, its kind", KIND.format(of), ord(kind_of(its_kind))
    for name, number in constants().items():
        yield name, name, number


def zeros(kind):
    """A value of it in C, with one 0 for each field."""
    if issubclass(kind, ctypes.Structure):
        return "{" + ", ".join(zeros(of) for _, of in kind._fields_) + "}"
    return "{" + zeros(kind._type_) + "}" if issubclass(kind, ctypes.Array) else "0"


def program(rows):
    wholes = [f"    (void)({name}){zeros(kind)};" for name, kind in structs().items()]
    prints = [f'    printf("%llu\\n", (unsigned long long)({expression}));' for _, expression, _ in rows]
    return "\n".join(("#include <ebb/ebb.h>", "#include <stddef.h>", "#include <stdio.h>", "int main(void) {",
                      *wholes, *prints, "    return 0;", "}", ""))


def main(include):
    rows = list(expected())
    with tempfile.TemporaryDirectory() as folder:
        source, made = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
        with open(source, "w") as file:
            file.write(program(rows))
        compiled = subprocess.run(["cc", "-std=c11", "-Werror", "-Wmissing-field-initializers", "-I", include,
                                   source, "-o", made], capture_output=True, text=True)
        if compiled.returncode:
            print(compiled.stderr)
            return 2
        numbers = [int(line) for line in subprocess.run([made], check=True, capture_output=True, text=True).stdout.split()]
    wrong = [(name, number, python) for (name, _, python), number in zip(rows, numbers) if number != python % (1 << 64)]
    for name, number, python in wrong:
        print(f"{name}: {number} in C, {python} in Python")
    print(f"{len(rows)} numbers compared, of {len(structs())} structs")
    return 1 if wrong or len(numbers) != len(rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
