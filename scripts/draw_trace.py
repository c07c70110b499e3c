#!/usr/bin/env python3
"""draw_trace.py TRACE.json PICTURE.svg: the timeline of a short trace (docs/profiling.md) as a picture,
for pages and mail; Perfetto shows more. Each rank has a row of what it computes and one for the
collectives of each group."""

import html
import json
import re
import sys

KINDS = [("forward", "#4e79a7"), ("backward", "#59a14f"), ("optimizer, norm, loss", "#9c9c9c"),
         ("g: outputs summed over tp", "#b07aa1"), ("f: gradients of inputs summed over tp", "#f28e2b"),
         ("gradient buckets summed over dp", "#e15759"), ("other collectives", "#76b7b2")]
COLOR = dict(KINDS)
LEFT, WIDTH, ROW, GAP = 70, 1110, 16, 10


def kind(name, track):
    if track == 0:
        backward = re.search("dgrad|wgrad|backward", name)
        return "backward" if backward else "forward" if re.search("gemm|^norm$|residual|embed", name) else KINDS[2][0]
    return (KINDS[3][0] if " g." in name else KINDS[4][0] if " f." in name
            else KINDS[5][0] if name.startswith("gradients ") else KINDS[6][0])


def innermost(events):
    """Those of one track that have none inside them. Collectives have tracks of their own."""
    events = sorted(events, key=lambda e: (e["ts"], -e["dur"]))
    for event, following in zip(events, events[1:] + [None]):
        if following is None or following["ts"] >= event["ts"] + event["dur"]:
            yield event


def main():
    events = json.load(open(sys.argv[1]))["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    begin = min(e["ts"] for e in slices)
    span = max(e["ts"] + e["dur"] for e in slices) - begin
    scale = WIDTH / span
    out, y = [], 46
    for at, (name, color) in enumerate(KINDS):
        x, line = LEFT + at % 4 * 275, 12 + at // 4 * 16
        out.append(f'<rect x="{x}" y="{line - 9}" width="10" height="10" fill="{color}"/>'
                   f'<text x="{x + 14}" y="{line}">{name}</text>')
    for rank in sorted({e["pid"] for e in slices}):
        out.append(f'<text x="4" y="{y + 12}" font-weight="bold">rank {rank}</text>')
        for track in sorted(t for r, t in named if r == rank):
            out.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{ROW - 2}" fill="#f3f3f3"/>')
            label = named[rank, track].split()[-1]  # tp, dp
            out.append(f'<text x="{LEFT - 4}" y="{y + 12}" text-anchor="end">'
                       f'{"" if track == 0 else html.escape(label)}</text>')
            mine = [e for e in slices if (e["pid"], e["tid"]) == (rank, track)]
            for e in innermost(mine):
                if track == 0 and re.search("all_|reduce_|wait$", e["name"]):
                    continue  # on the group's own track
                x, width = LEFT + (e["ts"] - begin) * scale, max(0.4, e["dur"] * scale)
                out.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 2}" '
                           f'fill="{COLOR[kind(e["name"], track)]}"><title>{html.escape(e["name"])}, '
                           f'{e["dur"] / 1e3:.2f} ms</title></rect>')
            y += ROW
        y += GAP
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**9) if span / 1e3 / s <= 12)
    for ms in range(0, int(span / 1e3) + 1, step):
        x = LEFT + ms * 1e3 * scale
        out.append(f'<text x="{x:.1f}" y="{y + 8}" text-anchor="middle">{ms} ms</text>')
    with open(sys.argv[2], "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {y + 14}" '
                   f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>\n'
                   + "\n".join(out) + "\n</svg>\n")


main()
