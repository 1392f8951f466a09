"""Estimates the work of checking a value against a schema, before it is done.

If a schema contains itself in more than one way, each level of a value is looked at once for each way that leads
there: two ways mean a thousand looks at the tenth level and a million at the twentieth, which nothing can interrupt.
And schemas come from other people's servers.
"""

import functools
import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentapp.tools import schema_graph
from agentapp.tools.schema_graph import Name, Parts, Place

MOST_LOOKS = 10_000_000
"""Tenths of a second, if nothing is said about what is wrong."""
MOST_EXPLAINED = 20_000
"""Each failed look is explained, and explaining takes a hundred times as long as looking."""
MOST_PAIRS = 300_000
"""Pairs of a part of a value and something it is checked against: half a second to count them."""
MOST_WRONG = 100_000
"""Everything wrong with a value is found at once: a kilobyte and a hundredth of a millisecond each."""
MOST_WAYS = 1000
"""Looks at one value that count as bounded by sizes. If all schemas in the schema, once each, take more: as many."""

_ENDLESS = 10**9
_DEEP = 64
"""The most levels that arguments can have."""


def looks(schema_text: str, value: Any) -> int:
    """How often, at most, something in a value is checked against something in a schema, as far as it was counted.

    Not counted if it is bounded by the sizes of the two.
    """
    return _effort(schema_text).looks(value)


def is_too_much(schema_text: str, value: Any) -> bool:
    """Whether checking a value would take more looks than are allowed for one."""
    return looks(schema_text, value) > MOST_LOOKS


def may_be_wrong_in_too_many_ways(schema_text: str, value: Any) -> bool:
    """Whether so much of a value may break so much of a schema that not everything can be reported."""
    most = MOST_WRONG // _effort(schema_text).size
    left = [value]
    for count, part in enumerate(left):  # the list grows on the way
        if count > most:
            return True
        if isinstance(part, dict | list):
            left += part.values() if isinstance(part, dict) else part
    return False


@functools.lru_cache(maxsize=512)  # as many as compiled ones are kept
def _effort(schema_text: str) -> "_Effort":
    return _Effort(json.loads(schema_text))


class _Effort:
    """What must be known about a schema before values are checked against it."""

    def __init__(self, schema: Any) -> None:
        self.size = schema_graph.size_of(schema)
        """The schema's size: the most things that can be wrong with one value, or with a part of it."""
        self._places: list[Place] = []
        self._bounded, self._endless = False, True
        try:
            self._places = schema_graph.read(schema)
        except schema_graph.Unreadable:
            return
        order = _order(self._places)
        if len(order) < len(self._places):  # a schema leads back to itself for the same value
            return
        self._endless = False
        size = sum(place.weight + sum(1 for _ in place.leads_to()) for place in self._places)
        self._bounded = _most_ways(self._places) <= max(MOST_WAYS, size)
        if self._bounded:
            self._places = []  # never looked at again
            return
        self._rank = {place: rank for rank, place in enumerate(order)}
        # How many looks one value without parts takes.
        self._flat = [place.weight for place in self._places]
        for number in reversed(order):
            beside = sum(self._flat[inner] for inner in self._places[number].beside)
            self._flat[number] = min(self._flat[number] + beside, _ENDLESS)

    def looks(self, value: Any) -> int:
        if self._bounded:
            return 0
        if self._endless:
            return _ENDLESS
        total, pairs = self._flat[0], 0
        left = [(value, {0: 1})]
        while left and total <= MOST_LOOKS:
            whole, ways = left.pop()
            inside: dict[Name, dict[int, int]] = {}
            for place, number in self._with_beside(ways):
                total += self._look_inside(place, number, whole, inside)
                if total > MOST_LOOKS:
                    break
            pairs += sum([len(ways) for ways in inside.values()])
            if pairs > MOST_PAIRS:  # counting them would take longer than looking
                return _ENDLESS
            left += [(whole[name], ways) for name, ways in inside.items()]
        return total

    def _look_inside(self, place: int, number: int, whole: Any, inside: dict[Name, dict[int, int]]) -> int:
        """How many looks at the parts of a value a place takes if the value is checked against it this often.

        Looks at the parts of these parts are not included.
        """
        parts = self._places[place].members if isinstance(whole, dict) else self._places[place].items
        total = 0
        for name in _names(parts, whole):
            held = parts.of(name)
            total += number * sum(self._flat[inner] for inner in held)
            if total > MOST_LOOKS:
                break
            if held and isinstance(whole[name], dict | list):
                ways = inside.setdefault(name, {})
                for inner in held:
                    ways[inner] = ways.get(inner, 0) + number
        return total

    def _with_beside(self, ways: dict[int, int]) -> Iterator[tuple[int, int]]:
        """These places and those they lead to for the same value, each with the number of all ways that lead to it."""
        found = dict(ways)
        left = [(self._rank[place], place) for place in found]
        heapq.heapify(left)
        while left:
            _, place = heapq.heappop(left)
            yield place, found[place]
            for inner in self._places[place].beside:
                if inner not in found:
                    heapq.heappush(left, (self._rank[inner], inner))
                found[inner] = found.get(inner, 0) + found[place]


def _names(parts: Parts, whole: Any) -> Iterable[Name]:
    """The parts of a value that are looked at."""
    if isinstance(whole, dict):
        return whole if parts.is_open else (name for name in parts.named if name in whole)
    if isinstance(whole, list):
        numbers = range(len(whole))
        return numbers if parts.is_open else (number for number in parts.named if number in numbers)
    return ()


def _order(places: Sequence[Place]) -> list[int]:
    """The places, each before those it leads to for the same value. Those in a circle, or after one, are left out."""
    before = [0] * len(places)
    for place in places:
        for inner in place.beside:
            before[inner] += 1
    order = [number for number, count in enumerate(before) if not count]
    for number in order:  # the list grows on the way
        for inner in places[number].beside:
            before[inner] -= 1
            if not before[inner]:
                order.append(inner)
    return order


def _most_ways(places: Sequence[Place]) -> int:
    """How often one value is looked at, at most, whatever values surround it."""
    ways, contains_loop = [0] * len(places), [False] * len(places)
    for component in _components(places):
        members = set(component)
        out = [inner for number in component for inner in places[number].leads_to() if inner not in members]
        loop = len(component) > 1 or component[0] in places[component[0]].leads_to()
        if loop and _forks(places, members):
            return _ENDLESS
        if loop:
            # The loop leads out again on each level. If what it leads to contains loops, each of these also continues.
            found = sum(places[number].weight for number in component)
            found += sum(ways[inner] * (_DEEP if contains_loop[inner] else 1) for inner in out)
        else:
            place = places[component[0]]
            found = place.weight + sum(ways[inner] for inner in place.beside)
            found += max(_most_of_a_part(place.members, ways), _most_of_a_part(place.items, ways))
        for number in component:
            ways[number] = min(found, _ENDLESS)
            contains_loop[number] = loop or any(contains_loop[inner] for inner in out)
    return ways[0]


def _most_of_a_part(parts: Parts, ways: Sequence[int]) -> int:
    rest = sum(ways[inner] for inner in parts.rest)
    named = max((ways[inner] for inner in parts.named.values()), default=0)
    return max(rest, named) + sum(ways[inner] for inner in parts.every)


def _forks(places: Sequence[Place], component: set[int]) -> bool:
    """Whether places that lead to each other do so in several ways for one part of a value, or are too many to tell."""
    beside = {number: [inner for inner in places[number].beside if inner in component] for number in component}
    back = {
        number: [_Back(parts, component) for parts in (places[number].members, places[number].items)]
        for number in component
    }
    left = 4 * (len(component) + sum(len(each.names) for both in back.values() for each in both))
    for entry in {inner for number in component for inner in places[number].within() if inner in component}:
        seen: set[int] = set()
        stack = [entry]
        names: tuple[set[Name], set[Name]] = (set(), set())
        others = [0, 0]
        while stack:
            number = stack.pop()
            left -= 1
            if number in seen or left < 0:
                return True
            seen.add(number)
            stack += beside[number]
            for kind, each in enumerate(back[number]):
                if not each.ways:
                    continue
                left -= len(each.names)
                again = each.others and (names[kind] or others[kind])
                if each.ways > 1 or again or (others[kind] and each.names) or not names[kind].isdisjoint(each.names):
                    return True
                names[kind].update(each.names)
                others[kind] += each.others
    return False


class _Back:
    """How a place leads to some others through parts of a value: by which names, and how often by all others."""

    def __init__(self, parts: Parts, component: set[int]) -> None:
        self.names = {name for name, inner in parts.named.items() if inner in component}
        rest = sum([inner in component for inner in parts.rest])
        every = sum([inner in component for inner in parts.every])
        self.others = rest + every
        self.ways = every + max(rest, bool(self.names))


def _components(places: Sequence[Place]) -> Iterator[list[int]]:
    """Groups of places that lead to each other, each group after all that it leads to (Tarjan's algorithm)."""
    found: dict[int, int] = {}
    lowest: dict[int, int] = {}
    open_ones: list[int] = []
    is_open: set[int] = set()
    path: list[tuple[int, Iterator[int]]] = [(0, places[0].leads_to())]
    while path:
        number, inner_ones = path[-1]
        if number not in found:
            found[number] = lowest[number] = len(found)
            open_ones.append(number)
            is_open.add(number)
        for inner in inner_ones:
            if inner not in found:
                path.append((inner, places[inner].leads_to()))
                break
            if inner in is_open:
                lowest[number] = min(lowest[number], found[inner])
        else:
            path.pop()
            if path:
                lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[number])
            if lowest[number] == found[number]:
                component = [open_ones.pop()]
                while component[-1] != number:
                    component.append(open_ones.pop())
                is_open.difference_update(component)
                yield component
