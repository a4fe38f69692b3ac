"""The noise along a model as an SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.analysis.attribution import Attribution


def draw(found: Attribution) -> str:
    """One bar per module: its output noise, split into propagated and introduced power."""
    from xml.sax.saxutils import escape

    row, left, wide = 16, 300, 420
    top = max((part.noise_out for part in found.parts), default=0.0) or 1.0
    lines = []
    for number, part in enumerate(found.parts):
        y, length = 40 + row * number, wide * part.noise_out / top
        own = length * min(part.introduced / part.noise_out, 1.0) ** 2 if part.noise_out > 0 else 0.0
        name = escape(part.module or "(outermost)")
        lines.append(f'<text x="{left - 8}" y="{y + 11}" text-anchor="end">{name}</text>')
        lines.append(f'<rect x="{left}" y="{y + 2}" width="{length:.1f}" height="{row - 4}" fill="#9db8d9"/>')
        lines.append(
            f'<rect x="{left + length - own:.1f}" y="{y + 2}" width="{own:.1f}" height="{row - 4}" fill="#b5402a"/>'
        )
        lines.append(f'<text x="{left + length + 6:.1f}" y="{y + 11}">{part.noise_out:.2%}</text>')
    height = 56 + row * len(found.parts)
    title = f"{escape(found.target)}: noise after each module; red is introduced there, blue carried through"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + wide + 80} {height}" '
    head += 'font-family="system-ui, sans-serif" font-size="11">'
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    heading = f'<text x="16" y="24" font-size="14">{title} ({found.images} images)</text>'
    return "\n".join((head, ground, heading, *lines, "</svg>")) + "\n"
