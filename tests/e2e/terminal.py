# SPDX-License-Identifier: Apache-2.0
"""Runs a program on a terminal of its own: terminal.py COLUMNS PROGRAM ARGUMENT... With 0 columns on a pipe instead.

Prints, a line each: its exit code; the longest time in tenths of a second in which it wrote nothing; the most columns
that a line which is written over took; how many times it was written; what is left on the screen, line by line.

A busy machine wakes a program late, which is not the program's silence: how late a sleeper woke in that time is taken
off.
"""
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time

NAP_S = 0.02


class Sleeper:
    """How late a thread woke that does nothing but sleep."""

    def __init__(self):
        self.late, self.awake = 0.0, time.monotonic()
        threading.Thread(target=self.sleep, daemon=True).start()

    def sleep(self):
        while True:
            time.sleep(NAP_S)
            now = time.monotonic()
            self.late, self.awake = self.late + max(0.0, now - self.awake - NAP_S), now

    def late_until(self, now):
        return self.late + max(0.0, now - self.awake - NAP_S)


def begin(columns, arguments):
    """(the process, what its output is read from)"""
    if columns == 0:
        child = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return child.pid, os.dup(child.stdout.fileno())
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execvp(arguments[0], arguments)
    return child, terminal


def run(columns, arguments):
    """(exit status, what it wrote, the longest silence)"""
    child, terminal = begin(columns, arguments)
    sleeper = Sleeper()
    output, silence, last = b"", 0.0, time.monotonic()
    late = sleeper.late_until(last)
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # as a terminal ends
            break
        if not piece:  # as a pipe ends
            break
        now = time.monotonic()
        now_late = sleeper.late_until(now)
        silence, last, late = max(silence, now - last - (now_late - late)), now, now_late
        output += piece
    now = time.monotonic()
    silence = max(silence, now - last - (sleeper.late_until(now) - late))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), output.decode(), silence


def screen(output):
    """The lines that stay, as a terminal shows them that is wide enough."""
    lines = []
    for line in output.replace("\r\n", "\n").split("\n"):
        shown = ""
        for part in re.split(r"(\r|\x1b\[K)", line):
            if part == "\r":
                at = 0
            elif part == "\x1b[K":
                shown = shown[:at]
            else:
                at = 0 if not shown else at
                shown = shown[:at] + part + shown[at + len(part):]
                at += len(part)
        lines.append(shown)
    return lines


status, written, longest = run(int(sys.argv[1]), sys.argv[2:])
drawn = re.findall(r"\r([^\r\n\x1b]+)\x1b\[K", written)
print("exit", status)
print("silence", int(longest * 10))
print("columns", max(map(len, drawn), default=0))
print("drawn", len(drawn))
for text in sorted(set(re.sub(r"[0-9.]+", "N", text) for text in drawn)):
    print("line:", text)
for text in screen(written):
    print("left:", text)
