"""What a drill found, as a value: what its JSON file holds, its page shows and its verdict says.

Moments are seconds since the drill began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from migrator.drill.history import Act, Fault, Known
from migrator.engine.verify import Verification

MOST_FAULTS = 200


class Stage(msgspec.Struct, kw_only=True):
    """A part of a drill. ``pause`` is, for a swap of the sides, the longest time between two
    acknowledged writes of one writer around it; ``stopped`` is for how long the mirror says that
    it stopped them."""

    name: str
    began: float
    ended: float
    pause: float | None = None
    stopped: float | None = None
    tries: int = 1


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """A process that was ended by SIGKILL, and when it was started again."""

    at: float
    process: str
    again: float


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The recording that was replayed: how many ``lines`` of how many ``keys``, how many
    ``seconds`` it took when it was recorded, whether its ``values`` are kept, synthetic or mixed.

    ``replayed`` lines were tried, more than there are where it began anew; ``made`` aggregates were
    put first, of which the recording does not tell how they came to be; ``left_out`` counts the
    lines for which no call was made, by the reason.
    """

    files: list[str]
    lines: int
    keys: int
    seconds: float
    speed: float
    values: str
    replayed: int
    made: int
    left_out: dict[str, int]


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """How the calls of one kind ended; ``wanted`` is how many had to be acknowledged. The last two
    are of the time in which the target was the primary."""

    acknowledged: int
    refused: int
    unknown: int
    wanted: int
    target_acknowledged: int = 0
    target_refused: int = 0


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What traffic was asked for: ``rate`` in calls a second, ``keys`` of each writer, ``skew`` as
    the exponent of Zipf's law. Of a recording ``rate`` is that of its lines at the speed chosen,
    ``keys`` are those of all writers, ``mix`` counts its lines, and there is no ``skew``."""

    writers: int
    rate: float
    keys: int
    mix: dict[str, float]
    skew: float | None
    seconds: float
    seed: int


class Report(msgspec.Struct, kw_only=True):
    """A drill. ``began`` is in seconds since 1970. ``throughput`` holds the acknowledged calls of
    each ``bucket`` seconds, ``lag`` how far the mirror was behind, by when it said so. ``longest``
    is the longest time between two acknowledged writes of one writer. ``reasons`` say why it did
    not pass, ``refused`` why calls were not carried out."""

    run: str
    revision: str
    env: str
    classes: list[str]
    ending: str
    began: float
    seconds: float
    passed: bool
    reasons: list[str]
    asked: Asked
    stages: list[Stage]
    kills: list[Kill]
    done: dict[str, Count]
    keys: int
    left: int
    longest: float
    bucket: float
    throughput: list[int]
    lag: list[tuple[float, float]]
    refused: dict[str, int]
    faults: list[Fault]
    more_faults: int
    verified: list[Verification]
    replay: Replay | None = None


def count(
    known: Known, wanted: Mapping[Act, int], reigns: Sequence[tuple[float, float]]
) -> dict[str, Count]:
    """The calls of each kind that was asked for. The target was the primary in the ``reigns``."""

    def there(moments: Sequence[tuple[float, Act]], act: Act) -> int:
        return sum(
            of is act and any(begin <= at <= end for begin, end in reigns) for at, of in moments
        )

    return {
        act.value: Count(
            acknowledged=tally.acknowledged, refused=tally.refused, unknown=tally.unknown,
            wanted=wanted[act], target_acknowledged=there(known.calls, act),
            target_refused=there(known.denials, act),
        )
        for act, tally in known.done.items()
        if act in wanted
    }  # fmt: skip


def reasons(
    counts: Mapping[str, Count], faults: Sequence[Fault], verified: Sequence[Verification],
    left: int, problems: Sequence[str],
) -> list[str]:  # fmt: skip
    """Why a drill did not pass; none where it did."""
    why = list(problems)
    for what, text in (
        ("missing", "acknowledged writes are missing"),
        ("twice", "acknowledged writes are there twice"),
        ("invented", "keys hold what nobody wrote"),
        ("differs", "keys hold other content than was written"),
        ("misread", "reads did not show what was acknowledged before"),
    ):
        found = [fault for fault in faults if fault.what == what]
        if found:
            keys = ", ".join(dict.fromkeys(f"{f.cls}:{f.key} ({f.side})" for f in found[:3]))
            why.append(f"{text}: {len(found):,} times, for example {keys}")
    for name, each in counts.items():
        if each.acknowledged < each.wanted:
            why.append(
                f"only {each.acknowledged:,} of {name} were acknowledged, and {each.wanted:,} are "
                "the least that proves anything"
            )
        elif each.target_refused and not each.target_acknowledged:
            why.append(
                f"no {name} was carried out while the target was the primary, and "
                f"{each.target_refused:,} were refused: it does not serve the application"
            )
    for found_ in verified:
        differ = found_.differ + found_.missing + found_.extra
        if differ:
            told = f", for example {found_.told[0].key}" if found_.told else ""
            why.append(f"{found_.cls}: both sides differ on {differ:,} blocks{told}")
    if left:
        why.append(f"{left:,} keys of the drill could not be removed")
    return why


def throughput(known: Known, began: float, seconds: float, bucket: float) -> list[int]:
    """The acknowledged calls of each span of ``bucket`` seconds."""
    counts = [0] * (int(seconds / bucket) + 1)
    for at, _ in known.calls:
        place = int((at - began) / bucket)
        if 0 <= place < len(counts):
            counts[place] += 1
    return counts
