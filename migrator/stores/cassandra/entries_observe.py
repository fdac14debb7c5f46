"""The verifier's decoder of the layouts ``row`` and ``partition``.

Maps are read by the driver's own types, tagged values by the model's second reader; the copier
uses neither.
"""

from __future__ import annotations

from collections.abc import Mapping

from cassandra import cqltypes

from migrator.model import json_text
from migrator.stores.cassandra.entries_read import Decoder

_MAP = cqltypes.MapType.apply_parameters([cqltypes.BytesType, cqltypes.BytesType])
_PROTOCOL = 5


def _unpack(data: bytes) -> Mapping[bytes, bytes]:
    return dict(_MAP.deserialize(data, _PROTOCOL).items())


OBSERVER = Decoder(json_text.observe, _unpack)
