"""What of very many keys holds most, in bounded memory.

Of more keys than are kept the heavy ones stay (Misra and Gries), each counted too low by at most
the share 1/KEPT of all that was seen.
"""

from __future__ import annotations

import threading

KEPT = 20_000


class Heavy:
    """Blocks and bytes by key, such as that of a partition."""

    def __init__(self) -> None:
        self._held: dict[bytes, list[int]] = {}
        self._seen = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, key: bytes, size: int) -> None:
        """Count a block."""
        with self._lock:
            self._seen += 1
            held = self._held.get(key)
            if held is not None:
                held[0] += 1
                held[1] += size
                return
            if len(self._held) >= KEPT:
                self._held = {k: [n - 1, size - size // n] for k, (n, size) in self._held.items()
                              if n > 1}  # fmt: skip
            else:
                self._held[key] = [1, size]

    def of(self, blocks: int) -> list[tuple[float, float]]:
        """Blocks and bytes of each key, were there so many blocks in all."""
        with self._lock:
            share = max(1.0, blocks / max(1, self._seen))
            return [(n * share, size * share) for n, size in self._held.values()]
