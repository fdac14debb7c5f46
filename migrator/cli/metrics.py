"""``mirror --metrics``: the figures of a live run over HTTP, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from migrator.errors import Failed, MigratorError, Refused

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from migrator.commands import Project
    from migrator.commands.figures import Figures
    from migrator.commands.records import LiveStatus

log = structlog.get_logger("migrator.metrics")


@contextmanager
def serving(project: Project, revision: str, address: tuple[str, int] | None) -> Iterator[None]:
    """Serve the figures of a run while the block runs; nothing without an address. Raises Refused
    without prometheus-client, Failed where nothing can listen there."""
    if address is None:
        yield
        return
    try:
        from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
    except ImportError:
        raise Refused(
            "metrics need the package prometheus-client", hint="pip install migrator[metrics]"
        ) from None
    host, port = address
    registry = CollectorRegistry()
    registry.register(Collector(project, project.control.run(revision).id))
    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise Failed(
            f"metrics can't be served there: {error.strerror}", where=f"{host}:{port}",
            hint="name another address:  --metrics [HOST:]PORT",
        ) from None  # fmt: skip
    log.info("metrics", host=host, port=server.server_port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Collector:
    """Reads the control database anew each time somebody asks."""

    def __init__(self, project: Project, run: str) -> None:
        self._project = project
        self._run = run

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.metrics_core import GaugeMetricFamily

        from migrator.commands.figures import figures

        up = "Whether the control database answers; without it there are no other figures."
        try:
            found = figures(self._project, self._run)
        except MigratorError as error:
            log.warning("no figures", where=error.where, error=error.what)
            yield GaugeMetricFamily("migrator_control_up", up, 0)
            return
        yield GaugeMetricFamily("migrator_control_up", up, 1)
        yield from _metrics(found, self._project.settings.env)


def _feeds(live: LiveStatus, names: list[str], values: list[str]) -> Iterator[Metric]:
    """What servers keep for feeds; absent where there is no bound, or they do not tell."""
    from prometheus_client.metrics_core import GaugeMetricFamily

    for name, text in (
        ("size_bytes", "What a feed keeps on a server's disk."),
        ("bound_bytes", "How much that may be before the feed is given up."),
        ("room_bytes", "How much more it may be before the server gives it up."),
        ("window_seconds", "For how long a server keeps what was written."),
    ):
        made = GaugeMetricFamily(f"migrator_feed_{name}", text, labels=[*names, "class", "side"])
        for each in live.feeds:
            if (value := getattr(each, name.partition("_")[0])) is not None:
                made.add_metric([*values, each.cls, each.side], value)
        yield made


def _answers(live: LiveStatus, names: list[str], values: list[str]) -> Iterator[Metric]:
    """What came of the reads that the mirror may answer; absent where there are none."""
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    from migrator.commands.records import OUTCOMES

    if (reads := live.reads) is None:
        return
    text = "The share of gateways' reads that the mirror may answer."
    share = GaugeMetricFamily("migrator_read_share", text, labels=names)
    share.add_metric(values, reads.share)
    yield share
    text = "Reads of that share, by what became of each, since the sides were last swapped."
    counts = CounterMetricFamily("migrator_gateway_reads", text, labels=[*names, "outcome"])
    for outcome in OUTCOMES:
        counts.add_metric([*values, outcome], getattr(reads, outcome))
    yield counts
    text = "How long reads of that share took, by the side that answered."
    labels = [*names, "side", "quantile"]
    took = GaugeMetricFamily("migrator_gateway_read_seconds", text, labels=labels)
    for side in ("primary", "mirror"):
        for name, quantile in (("median", "0.5"), ("p99", "0.99")):
            if (seconds := getattr(reads, f"{side}_{name}")) is not None:
                took.add_metric([*values, side, quantile], seconds)
    yield took


def _metrics(found: Figures, env: str) -> Iterator[Metric]:
    """Names end in their unit, and in ``_total`` where they only grow."""
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        SummaryMetricFamily,
    )

    from migrator.commands.records import SHADOWED
    from migrator.model.phase import Phase

    run, live = found.status, found.status.live
    names, values = ["revision", "env"], [found.status.revision, env]

    def gauge(name: str, text: str, value: float) -> Metric:
        made = GaugeMetricFamily(f"migrator_{name}", text, labels=names)
        made.add_metric(values, value)
        return made

    def counter(name: str, text: str, counts: dict[str, float], label: str = "") -> Metric:
        labels = [*names, label] if label else names
        made = CounterMetricFamily(f"migrator_{name}", text, labels=labels)
        for key, count in counts.items():
            made.add_metric([*values, key] if label else values, count)
        return made

    phases = GaugeMetricFamily(
        "migrator_run_phase", "1 for the phase that the run is in.", labels=[*names, "phase"]
    )
    for phase in Phase:
        phases.add_metric([*values, phase.value], phase.value == run.phase)
    yield phases
    yield gauge("run_epoch", "Grows with every change of the primary.", run.epoch)
    yield gauge("planned_blocks", "Blocks that the plan found in the source.", run.planned)
    yield counter("copied_blocks", "Blocks read of the source to be copied.", {"": run.read})
    yield gauge("copy_paused", "1 where the copy is paused.", run.paused)
    if run.throttle is not None:
        text = "Blocks that may be copied in a second; absent without a bound."
        yield gauge("copy_throttle_blocks_per_second", text, run.throttle)
    yield gauge("quarantined_blocks", "Blocks that could not be written.", run.quarantined)
    if live is not None:
        text = "By how much the mirror was behind when it told so last."
        yield gauge("mirror_lag_seconds", text, live.lag)
        yield gauge("mirror_waits", "1 while the mirror waits and reads nothing.", bool(live.waits))
        text = "Writes of gateways that have begun and not ended."
        yield gauge("open_brackets", text, live.brackets)
        yield from _feeds(live, names, values)
        text = "1 while the keys of both sides are compared anew."
        yield gauge("mirror_scanning", text, live.scanning)
        text = "Blocks not written back, which a rollback would lose."
        yield gauge("ledger_blocks", text, live.ledger)
        if (reads := live.shadow) is not None:
            shadow = GaugeMetricFamily(
                "migrator_shadow_keys", "What the last shadow reads found.",
                labels=[*names, "outcome"],
            )  # fmt: skip
            for outcome in SHADOWED:
                shadow.add_metric([*values, outcome], getattr(reads, outcome))
            yield shadow
        if (served := live.gateways) is not None:
            reads_ = {name: float(getattr(served, name)) for name in (*SHADOWED, "dropped")}
            text = "Shadow reads of gateways since the sides were last swapped."
            yield counter("gateway_shadow_reads", text, reads_, "outcome")
        yield from _answers(live, names, values)
        yield gauge("swap_in_hand", "1 while the sides are being swapped.", bool(live.fence))
    text = "When the mirror told its figures last, since 1970."
    yield gauge("mirror_told_timestamp_seconds", text, found.told)
    text = "Touched keys that were acted on since the mirror started."
    yield counter("touches", text, {"": found.touched})
    text = "Blocks brought to the mirror, by what was done, since it started."
    outcomes = {name: float(count) for name, count in found.reconciled.items()}
    yield counter("reconciled_blocks", text, outcomes, "outcome")
    text = "How long writes were stopped for each swap, by the side that became the primary."
    swaps = SummaryMetricFamily("migrator_swap_pause_seconds", text, labels=[*names, "to"])
    for side in ("source", "target"):
        pauses = found.pauses.get(side, [])
        swaps.add_metric([*values, side], len(pauses), sum(pauses))
    yield swaps
