# SPDX-License-Identifier: Apache-2.0
"""Runs a command in a terminal that is WIDTH columns wide, and prints what it showed there.

    terminal_width.py WIDTH COMMAND...
"""
import fcntl
import os
import pty
import struct
import sys
import termios

pid, screen = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, int(sys.argv[1]), 0, 0))
    os.execv(sys.argv[2], sys.argv[2:])
shown = b""
try:
    while piece := os.read(screen, 1 << 16):
        shown += piece
except OSError:  # the command has ended
    pass
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.stdout.write(shown.decode().replace("\r\n", "\n"))
sys.exit(status)
