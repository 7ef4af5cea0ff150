# Answers questions with protego, as google.cc does with Google's parser.
import struct
import sys

from protego import Protego


def number():
    b = sys.stdin.buffer.read(4)
    if len(b) < 4:
        sys.exit()
    return struct.unpack("<I", b)[0]


def text():
    return sys.stdin.buffer.read(number()).decode("utf-8", "replace")


while True:
    robots, agent = text(), text()
    rules = Protego.parse(robots)
    answer = bytes(rules.can_fetch(text(), agent) for _ in range(number()))
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
