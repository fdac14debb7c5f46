"""C08: keys, fields and values of Redis are bytes, and no two keys become one block."""

from __future__ import annotations

import pytest

from migrator.model.move import At
from tests.hard_cases.redis_bench import RedisBench, redis_bench
from tests.system import kit

__all__ = ["redis_bench"]

KEYS = [b"\xac\x00k", b"1", b"\xff", b"\xfe", b"#x", b'#"x"', b"\xef\xbf\xbd"]


@pytest.mark.parametrize("layout", ["hash", "keys", "string"])
def test_binary_keys_come_back(redis_bench: RedisBench, layout: str) -> None:
    for n, key in enumerate(KEYS):
        redis_bench.plain.hset(b"user:" + key, mapping={b"\x8a": b"\x80\x04K", "n": str(n)})
    middle = "At('emb', 'c08')"
    shop = redis_bench.shop(
        ("At('cache', 'user')", middle), (middle, f"At('cache', 'there', layout={layout!r})")
    )
    kit.carry(shop, "0001")
    kit.carry(shop, "0002")
    found = redis_bench.contents(shop, At("emb", "c08"))
    assert len(found) == len(KEYS)
    assert all(record["\udc8a"] == b"\x80\x04K" for _, record in found.values())
    ids = {id_ if isinstance(id_, bytes) else str(id_).encode() for id_, _ in found.values()}
    assert ids == {*KEYS}
    kit.assert_equal(redis_bench.contents(shop, At("cache", "there", layout=layout)), found)
    if layout != "keys":
        there = [k for k in redis_bench.listed() if k.startswith(b"there:")]
        assert sorted(k.removeprefix(b"there:") for k in there) == sorted(KEYS)
