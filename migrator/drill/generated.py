"""Traffic that is made up: calls of a mix, on keys of which some are wanted more. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import accumulate

from migrator.drill.calls import Call, Place, Turn
from migrator.drill.history import READS, Act

LONGEST_LIST = 20


class Generated:
    """Endless calls, one each ``pause`` seconds; ``skew`` is the exponent of Zipf's law."""

    def __init__(
        self, places: list[Place], mix: Mapping[Act, float], pause: float, skew: float,
        chosen: random.Random,
    ) -> None:  # fmt: skip
        # Time lost to a pause is not made up for: there would be a burst after it.
        self.late = self._pause = pause
        self._mix = mix
        self._chosen = chosen
        self._places = list(places)
        # The most wanted keys are other ones in each process.
        chosen.shuffle(self._places)
        self._weights = list(accumulate(1 / rank**skew for rank in range(1, len(places) + 1)))

    def next(self) -> tuple[float, Place]:
        return self._pause, self._chosen.choices(self._places, cum_weights=self._weights)[0]

    def calls(self, place: Place, turn: Turn) -> Iterator[Call]:
        shape, number = place.shape, turn()
        mark = number * 100 + place.writer
        act = self._act(place)
        match act:
            case Act.UPDATE:
                new = shape.value(place.name, number, mark)[shape.mark]
                yield Call(act, set={shape.mark_path: new})
            case Act.APPEND:
                item = shape.element(place.value or {}, mark)
                yield Call(act, path=shape.items_path, item=item)
            case Act.PUT:
                yield Call(act, shape.value(place.name, number, mark))
            case Act.ENTRIES:
                yield Call(act, paths=(shape.mark_path,))
            case _:
                yield Call(act)

    def _act(self, place: Place) -> Act:
        if place.unread:
            return Act.GET  # what it held before this process began
        act = self._chosen.choices(list(self._mix), list(self._mix.values()))[0]
        if place.value is None and act not in READS:
            return Act.PUT
        if act is Act.APPEND:
            there = (place.value or {}).get(place.shape.items)
            if not place.shape.items or not isinstance(there, list) or len(there) >= LONGEST_LIST:
                return Act.PUT
        return act
