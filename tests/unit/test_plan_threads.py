"""Plans and epochs are decoded by several threads of an application, all at once from the start."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import sys, threading
from migrator.errors import Refused
from migrator.model.epoch import from_text
from migrator.planning.file import decode_plan

sys.setswitchinterval(1e-6)
plan = b'{"format": 1, "revision": "1", "live": true, "moves": [{"cls": "Game", "read": 1}]}'
ready = threading.Barrier(4)

def decode():
    ready.wait()
    try:
        decode_plan(plan, "run")
    except Refused:
        pass
    from_text('{"run": "r", "revision": "1", "number": 1}')

threads = [threading.Thread(target=decode) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_the_first_plans_may_be_decoded_by_several_threads_at_once() -> None:
    # In processes of their own: what is decoded once is known, and a crash ends the process.
    for _ in range(8):
        done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
