import uuid

from approvals.ids import uuid7


def test_a_key_is_a_uuid_of_version_7():
    for key in [uuid7() for _ in range(1000)]:
        assert (key.version, key.variant) == (7, uuid.RFC_4122)


def test_keys_sort_by_the_time_they_were_made(monkeypatch):
    made = []
    for moment in (1, 2, 1_700_000_000_000, 1_800_000_000_000, 2**48 - 1):
        monkeypatch.setattr("approvals.ids.time.time_ns", lambda moment=moment: moment * 1_000_000)
        made.append(uuid7())
    assert made == sorted(made)
    assert [key.int >> 80 for key in made] == [1, 2, 1_700_000_000_000, 1_800_000_000_000, 2**48 - 1]


def test_keys_made_at_one_moment_differ(monkeypatch):
    monkeypatch.setattr("approvals.ids.time.time_ns", lambda: 1_800_000_000_000_000_000)
    assert len({uuid7() for _ in range(10_000)}) == 10_000
