"""Points and their words  ->  labels beside them that cover neither each other nor the points.

Every label tries places all round its point, near ones first, and takes the cheapest that touches
nothing placed before; a few rounds let early ones make room for late ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from numpy.typing import NDArray

from profkit.show.plots.base import Looks, write_note

if TYPE_CHECKING:
    from profkit.units import TypographicPoints


Boxes = NDArray[np.float64]  # n x 4 (or more): left, bottom, right, top in pixels
_ANGLES = np.deg2rad([0, 180, 90, 270, 30, 150, 210, 330, 60, 120, 240, 300])
_REACHES = (9, 14, 20, 28, 38, 50, 66, 86, 112, 145, 190, 245, 315, 400)  # points
_ASIDE = (10, 24, 48)  # points
_ROUNDS = 4
_ON_TEXT = 250.0  # pixels that a label goes out of its way to keep a leader off another's words
_LEFT_OUT = 5000.0  # what it costs to leave a label out
_GAP = 3.0  # pixels of air round a label


@dataclass(frozen=True)
class Label:
    """Words for a point, or for several that belong together."""

    # data coordinates of the points that it may be written beside, best first
    spots: tuple[tuple[float, float], ...]
    text: str  # one or two lines
    colour: str  # of the words and of the leader line


def place_labels(
    ax: Axes,
    labels: Sequence[Label],
    forbidden_boxes: Boxes,
    costly_boxes: Boxes,
    size: TypographicPoints = 10.5,
) -> list[Annotation]:
    """Write labels on an Axes whose limits and layout are settled, and return what was written.

    The most important labels come first: the last ones are left out when there is no room. No label
    touches a `forbidden_boxes` box (other texts, the legend; pixels); they keep off `costly_boxes` ones
    where they can, whose fifth column says how many pixels a label goes out of its way.
    """
    if not labels:
        return []
    tries = _list_label_placements(ax, labels, forbidden_boxes, costly_boxes, size)
    by_height = sorted(range(len(labels)), key=lambda i: tries[i].boxes[0, 1])
    orders = (range(len(labels)), range(len(labels))[::-1], by_height)
    settled = [choose_placements_of_least_cost(tries, order) for order in orders]
    _, chosen = min(settled, key=lambda result: result[0])
    written = []
    for label, one, i in zip(labels, tries, chosen, strict=True):
        if i is not None:
            written.append(write_label(ax, label, one.boxes[i], one.anchors[i], size))
    return written


def _list_label_placements(
    ax: Axes,
    labels: Sequence[Label],
    forbidden_boxes: Boxes,
    costly_boxes: Boxes,
    size: TypographicPoints,
) -> list[Tries]:
    """Return the places of each label, and what they cost beside the points of the others."""
    frame = ax.get_window_extent()
    inside = np.array([frame.x0, frame.y0, frame.x1, frame.y1])
    anchors = [ax.transData.transform(label.spots) for label in labels]
    tries = []
    for i, label in enumerate(labels):
        probe = ax.text(0, 0, label.text, fontsize=size, parse_math=False, linespacing=1.15)
        wide = np.array(probe.get_window_extent().size) + 2 * _GAP
        probe.remove()
        one = list_free_placements_with_costs(
            anchors[i], wide, ax.figure.dpi / 72, inside, forbidden_boxes, costly_boxes
        )
        foreign = anchors[:i] + anchors[i + 1 :]
        tries.append(replace(one, cost=one.cost + compute_misleading_cost(one, foreign)))
    return tries


@dataclass(frozen=True)
class Tries:
    """The places of one label: boxes, the anchor of each, what each costs whatever others do."""

    boxes: Boxes
    anchors: Boxes
    leaders: Boxes
    cost: Boxes


def list_free_placements_with_costs(
    anchors: Boxes,
    size: Boxes,
    pixels_per_point: float,
    frame_box: Boxes,
    forbidden_boxes: Boxes,
    costly_boxes: Boxes,
) -> Tries:
    """Return the places of a label of this size round its anchors that touch nothing; all in pixels.

    `anchors`: n x 2, the best first; `pixels_per_point`: of a typographic point; `frame_box`: the frame.
    """
    boxes = np.vstack([list_candidate_boxes(anchor, size, pixels_per_point) for anchor in anchors])
    each = len(boxes) // len(anchors)
    ends = np.repeat(anchors, each, axis=0)
    leaders = np.hstack([find_nearest_points_of_boxes(boxes, ends), ends])
    cost = (
        np.hypot(*(leaders[:, :2] - ends).T)
        + find_overlaps(boxes, costly_boxes) @ costly_boxes[:, 4]
    )
    cost += _ON_TEXT * count_crossed_boxes(leaders, forbidden_boxes)
    cost += np.repeat(np.arange(len(anchors)) * 8.0, each)  # best spot first
    cost[
        _find_boxes_outside(boxes, frame_box) | find_overlaps(boxes, forbidden_boxes).any(axis=1)
    ] = np.inf
    keep = np.isfinite(cost)
    if not keep.any():
        keep[:1] = True  # one place that costs too much, so that the label is left out
    return Tries(boxes[keep], ends[keep], leaders[keep], cost[keep])


def _find_boxes_outside(boxes: Boxes, frame_box: Boxes) -> NDArray[np.bool_]:
    """Return which boxes are not whole in the frame."""
    begins = boxes[:, :2] < frame_box[:2]
    ends = boxes[:, 2:] > frame_box[2:]
    outside: NDArray[np.bool_] = np.any(np.hstack([begins, ends]), axis=1)
    return outside


def compute_misleading_cost(tries: Tries, points_of_other_labels: Sequence[Boxes]) -> Boxes:
    """Return what places cost that lie as near to another label's points as to their own."""
    if not points_of_other_labels:
        return np.zeros(len(tries.cost))
    others = np.vstack(points_of_other_labels)[None, :, :]
    gap = others - np.clip(others, tries.boxes[:, None, :2], tries.boxes[:, None, 2:])
    nearest = np.hypot(gap[..., 0], gap[..., 1]).min(axis=1)
    own = np.hypot(*(tries.leaders[:, :2] - tries.anchors).T)
    cost: Boxes = _ON_TEXT / 2 * (nearest < own + 8)
    return cost


def list_candidate_boxes(anchor: Boxes, size: Boxes, pixels_per_point: float) -> Boxes:
    """Return boxes round an anchor: on rays at every reach, and stacked in columns left and right."""
    reach = np.repeat(np.array(_REACHES) * pixels_per_point, len(_ANGLES))
    angle = np.tile(_ANGLES, len(_REACHES))
    rays = np.stack(
        [np.cos(angle) * (reach + size[0] / 2), np.sin(angle) * (reach + size[1] / 2)], axis=1
    )
    aside = np.array(_ASIDE) * pixels_per_point + size[0] / 2
    across, up = np.meshgrid(np.concatenate([aside, -aside]), np.arange(-8, 9) * size[1])
    columns = np.stack([across.ravel(), up.ravel()], axis=1)
    centre = anchor + np.vstack([rays, columns])
    return np.hstack([centre - size / 2, centre + size / 2])


def choose_placements_of_least_cost(
    tries: list[Tries], order: Sequence[int]
) -> tuple[float, list[int | None]]:
    """Place the labels in this order, then again with the others in sight; cost and choices."""
    chosen: list[int | None] = [None] * len(tries)
    paid = [_LEFT_OUT] * len(tries)
    for _ in range(_ROUNDS):
        before = list(chosen)
        for i in order:
            boxes, leaders = [], []  # of the labels already there
            for j, place in enumerate(chosen):
                if place is not None and j != i:
                    boxes.append(tries[j].boxes[place])
                    leaders.append(tries[j].leaders[place])
            cost = tries[i].cost
            if boxes:
                cost = _compute_cost_beside_labels(tries[i], np.array(boxes), np.array(leaders))
            best = int(np.argmin(cost))
            chosen[i], paid[i] = None, _LEFT_OUT
            if np.isfinite(cost[best]):
                chosen[i], paid[i] = best, float(cost[best])
        if chosen == before:
            break
    return sum(paid), chosen


def _compute_cost_beside_labels(tries: Tries, boxes: Boxes, leaders: Boxes) -> Boxes:
    """Return what each place costs beside other labels; infinite where it would touch one."""
    crossed = 45.0 * find_crossings(tries.leaders, leaders).sum(axis=1)
    covered = count_crossed_boxes(leaders, tries.boxes, per_box=True)
    covered += count_crossed_boxes(tries.leaders, boxes)
    cost: Boxes = tries.cost + crossed + _ON_TEXT * covered
    cost[find_overlaps(tries.boxes, boxes).any(axis=1)] = np.inf
    return cost


def find_nearest_points_of_boxes(boxes: Boxes, points: Boxes) -> Boxes:
    return np.clip(points, boxes[:, :2], boxes[:, 2:])


def find_overlaps(boxes: Boxes, other_boxes: Boxes) -> NDArray[np.bool_]:
    """Return which boxes touch which other ones (len(boxes) x len(other_boxes))."""
    boxes = boxes[:, None]
    other_boxes = other_boxes[None, :]
    across = (boxes[..., 0] < other_boxes[..., 2]) & (boxes[..., 2] > other_boxes[..., 0])
    touching: NDArray[np.bool_] = (
        across & (boxes[..., 1] < other_boxes[..., 3]) & (boxes[..., 3] > other_boxes[..., 1])
    )
    return touching


def find_crossings(segments: Boxes, other_segments: Boxes) -> NDArray[np.bool_]:
    """Return which segments cross which other ones (rows are x0, y0, x1, y1)."""

    def compute_side(p: Boxes, q: Boxes, r: Boxes) -> Boxes:
        u = q - p
        v = r - p
        return np.sign(u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0])

    p = segments[:, None, :2]
    q = segments[:, None, 2:]
    r = other_segments[None, :, :2]
    s = other_segments[None, :, 2:]
    return (compute_side(p, q, r) * compute_side(p, q, s) < 0) & (
        compute_side(r, s, p) * compute_side(r, s, q) < 0
    )


def count_crossed_boxes(segments: Boxes, boxes: Boxes, per_box: bool = False) -> NDArray[np.int_]:
    """Return how many boxes each segment runs through; `per_box`: how many segments a box lies on."""
    steps = np.linspace(0, 1, 15)[None, :, None]
    points = segments[:, None, :2] + steps * (segments[:, None, 2:] - segments[:, None, :2])
    x = points[:, None, :, 0]
    y = points[:, None, :, 1]
    left, bottom, right, top = (boxes[None, :, None, i] for i in range(4))
    hit = ((x > left) & (x < right) & (y > bottom) & (y < top)).any(axis=2)
    counted: NDArray[np.int_] = hit.sum(axis=0 if per_box else 1)
    return counted


def write_label(
    ax: Axes, label: Label, box: Boxes, anchor: Boxes, size: TypographicPoints
) -> Annotation:
    """Return an annotation whose box lies where it was placed, with a leader when it is far off."""
    point = ax.figure.dpi / 72
    at = ax.transData.inverted().transform(anchor)
    corner = (box[:2] + _GAP - anchor) / point
    end = find_nearest_points_of_boxes(box[None, :], anchor[None, :])[0]
    if np.hypot(*(end - anchor)) > 11 * point:
        line = {"arrowstyle": "-", "color": label.colour, "lw": 0.8, "shrinkA": 0, "shrinkB": 4}
        leader = tuple((end - anchor) / point)
        write_note(ax, "", tuple(at), leader, zorder=3.5, arrowprops=line).set_in_layout(False)
    looks: Looks = {"va": "bottom", "ha": "left", "linespacing": 1.15, "parse_math": False}
    text = write_note(
        ax,
        label.text,
        tuple(at),
        tuple(corner),
        fontsize=size,
        zorder=6,
        color=label.colour,
        **looks,
    )
    text.set_in_layout(False)
    text.set_path_effects([withStroke(linewidth=2.5, foreground="white", alpha=0.85)])
    return text
