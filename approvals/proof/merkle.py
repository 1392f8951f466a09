"""Merkle trees as in RFC 6962 (section 2.1): leaves and nodes are hashed differently, any number of leaves.

A tree grows leaf by leaf and keeps one hash for each perfect subtree, so that millions of leaves need no memory and a
half-grown tree can be put aside.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256

EMPTY = sha256().digest()


def leaf(content: bytes) -> bytes:
    return sha256(b"\x00" + content).digest()


def node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


class Tree:
    """A tree that grows at its end. `state` is all of it; `Tree(state)` continues from there."""

    def __init__(self, state: Iterable[Sequence[object]] = ()) -> None:
        self._subtrees: list[tuple[int, bytes]] = [(int(str(size)), bytes.fromhex(str(top))) for size, top in state]

    def add(self, hashed: bytes) -> None:
        """Add a leaf by its hash."""
        size, subtrees = 1, self._subtrees
        while subtrees and subtrees[-1][0] == size:
            hashed = node(subtrees.pop()[1], hashed)
            size *= 2
        subtrees.append((size, hashed))

    @property
    def size(self) -> int:
        return sum(size for size, _ in self._subtrees)

    @property
    def root(self) -> bytes:
        if not self._subtrees:
            return EMPTY
        *others, (_, top) = self._subtrees
        for _, left in reversed(others):
            top = node(left, top)
        return top

    @property
    def state(self) -> list[list[object]]:
        return [[size, top.hex()] for size, top in self._subtrees]


def root_of(leaves: Iterable[bytes]) -> bytes:
    """The root over leaves given by their hashes."""
    tree = Tree()
    for hashed in leaves:
        tree.add(hashed)
    return tree.root


def path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The hashes needed besides one leaf to compute the root, from the leaf upwards."""
    if len(leaves) == 1:
        return []
    half = 1 << ((len(leaves) - 1).bit_length() - 1)
    if index < half:
        return [*path(leaves[:half], index), root_of(leaves[half:])]
    return [*path(leaves[half:], index - half), root_of(leaves[:half])]
