"""Draws the windows that bench_real_traces --windows prints: begin_s,truth_j,naive_j,ours_j,u_j. SVG to stdout."""

import csv
import sys

WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 36, 48
MOST = 110  # per cent


def main() -> None:
    rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(sys.stdin)]
    if not rows:
        sys.exit("accuracy_picture: no windows came in")
    first, last = rows[0]["begin_s"], rows[-1]["begin_s"]

    def x(t: float) -> float:
        return LEFT + (t - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(percent: float) -> float:
        inside = max(-MOST, min(MOST, percent))
        return TOP + (MOST - inside) / (2 * MOST) * (HEIGHT - TOP - BOTTOM)

    def error(row: dict, key: str) -> float:
        return 100 * (row[key] / row["truth_j"] - 1)

    def points(pairs: list[tuple[float, float]]) -> str:
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in pairs)

    def u(row: dict) -> float:
        return 200 * row["u_j"] / row["truth_j"]

    upper = [(x(r["begin_s"]), y(error(r, "ours_j") + u(r))) for r in rows]
    lower = [(x(r["begin_s"]), y(error(r, "ours_j") - u(r))) for r in rows]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<polygon points="{points(upper + lower[::-1])}" fill="#9ecae1" fill-opacity="0.6"/>',
    ]
    for percent in range(-100, 101, 50):
        color = "black" if percent == 0 else "#dddddd"
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(percent):.1f}" y2="{y(percent):.1f}" stroke="{color}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(percent) + 4:.1f}" text-anchor="end">{percent:+d} %</text>')
    for second in range(int(first) + 1, int(last) + 1):
        out.append(f'<text x="{x(second):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{second} s</text>')
    for key, color in (("naive_j", "#e6550d"), ("ours_j", "#3182bd")):
        line = points([(x(r["begin_s"]), y(error(r, key))) for r in rows])
        out.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
    out += [
        f'<text x="{LEFT}" y="20"><tspan fill="#e6550d">polling, held</tspan> '
        '<tspan fill="#3182bd" dx="16">Zeus, with the interval it states (k = 2)</tspan> '
        '<tspan dx="16">black: the meter</tspan></text>',
        f'<text x="{(WIDTH + LEFT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">begin of a window of 1 s</text>',
        "</svg>",
    ]
    print("\n".join(out))


main()
