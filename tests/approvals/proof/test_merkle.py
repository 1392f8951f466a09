from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.proof import merkle
from approvals.proof.verify_proof import climb

# The test vectors that implementations of Certificate Transparency share.
INPUTS = [bytes.fromhex(text) for text in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
)]  # fmt: skip
ROOTS = {
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    4: "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    5: "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    6: "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


@pytest.mark.parametrize("size", ROOTS)
def test_roots_are_those_of_rfc_6962(size):
    assert merkle.root_of(map(merkle.leaf, INPUTS[:size])).hex() == ROOTS[size]


def test_a_tree_of_nothing_has_the_root_of_nothing():
    assert merkle.Tree().root == merkle.root_of([]) == sha256(b"").digest()


@given(st.integers(1, 70), st.data())
def test_every_leaf_has_a_path_to_the_root_that_holds_for_no_other_leaf_or_place(size, data):
    contents = [bytes([number]) for number in range(size)]
    leaves = [merkle.leaf(content) for content in contents]
    root, index = merkle.root_of(leaves).hex(), data.draw(st.integers(0, size - 1))
    steps = [step.hex() for step in merkle.path(leaves, index)]
    assert climb(contents[index], index, size, steps) == root
    assert climb(b"other", index, size, steps) != root
    if size > 1:
        elsewhere = data.draw(st.integers(0, size - 1).filter(lambda place: place != index))
        assert leads_elsewhere(contents[index], elsewhere, size, steps)
        with pytest.raises(ValueError, match="too short"):
            climb(contents[index], index, size, steps[:-1])
    with pytest.raises(ValueError, match="too long"):
        climb(contents[index], index, size, [*steps, root])
    with pytest.raises(ValueError, match="a place outside"):
        climb(contents[index], size, size, steps)


def leads_elsewhere(content: bytes, index: int, size: int, steps: list[str]) -> bool:
    """Whether a path does not fit its place: it leads to another root, or is too long or too short."""
    try:
        return (
            climb(content, index, size, steps) != merkle.root_of([merkle.leaf(bytes([n])) for n in range(size)]).hex()
        )
    except ValueError:
        return True


@given(st.lists(st.binary(max_size=4), max_size=70), st.data())
def test_a_tree_put_aside_goes_on_where_it_was(contents, data):
    leaves = [merkle.leaf(content) for content in contents]
    cut = data.draw(st.integers(0, len(leaves)))
    tree = merkle.Tree()
    for hashed in leaves[:cut]:
        tree.add(hashed)
    again = merkle.Tree(tree.state)
    for hashed in leaves[cut:]:
        again.add(hashed)
    assert (again.root, again.size) == (merkle.root_of(leaves), len(leaves))
