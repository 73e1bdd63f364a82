"""Runs a program in a terminal until its screen shows all of some texts.

usage: screen.py TEXT... -- PROGRAM ARGUMENT...
"""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

import pyte

COLUMNS, ROWS = 160, 40

separator = sys.argv.index("--")
texts, program = sys.argv[1:separator], sys.argv[separator + 1 :]

pid, terminal = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm-256color"
    os.execvp(program[0], program)
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

screen = pyte.Screen(COLUMNS, ROWS)
stream = pyte.ByteStream(screen)
end = time.monotonic() + 90
missing = texts
while missing and time.monotonic() < end:
    if not select.select([terminal], [], [], 1)[0]:
        continue
    try:
        stream.feed(os.read(terminal, 65536))
    except OSError:
        break  # the program ended
    missing = [text for text in texts if not any(text in line for line in screen.display)]

print("\n".join(line.rstrip() for line in screen.display).rstrip())
os.kill(pid, signal.SIGTERM)
os.waitpid(pid, 0)
sys.exit(f"the screen does not show {missing}" if missing else 0)
