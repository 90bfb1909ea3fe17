"""The files of the pictures: small, with a palette, light and dark."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tests.support.jobs.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from PIL.Image import Image

__all__ = ["FOLDER", "MAX_BYTES", "THEMES", "sizes", "write_gif", "write_png"]

FOLDER = ROOT / "docs" / "pictures"
THEMES = ("light", "dark")
MAX_BYTES = {".png": 120_000, ".gif": 600_000}
"""Of a file."""
MOST_COLOURS, FEWEST_COLOURS = 256, 64
CAPTION = 36
"""Height of a caption."""
CAPTION_COLOURS = "#24292f", "#ffffff"


def write_png(name: str, theme: str, screenshot: bytes) -> None:
    """Write NAME-THEME.png, with as many colours as its limit allows."""
    image, colours = _image(screenshot), MOST_COLOURS
    while len(data := _png(image, colours)) > MAX_BYTES[".png"]:
        colours //= 2
        assert colours >= FEWEST_COLOURS, f"{name} is too large for its limit: make its window or its scale smaller"
    _write(f"{name}-{theme}.png", data)


def _png(image: Image, colours: int) -> bytes:
    data = io.BytesIO()
    _quantized(image, colours).save(data, "PNG", optimize=True)
    return data.getvalue()


def write_gif(name: str, theme: str, screenshots: Mapping[str, bytes], milliseconds: int) -> None:
    """Write NAME-THEME.gif, which shows each screenshot above its caption for some time, again and again."""
    images = [_captioned(_image(screenshot), caption) for caption, screenshot in screenshots.items()]
    palette = _quantized(_stacked(images), MOST_COLOURS - 1)  # one is left for what does not change
    frames = [image.quantize(palette=palette, dither=0) for image in images]
    data = io.BytesIO()
    frames[0].save(data, "GIF", save_all=True, append_images=frames[1:], duration=milliseconds, loop=0)
    _write(f"{name}-{theme}.gif", data.getvalue())


def _captioned(image: Image, caption: str) -> Image:
    """Return an image of half the size with a line of text below."""
    from PIL import Image, ImageDraw, ImageFont

    width, height = image.width // 2, image.height // 2
    whole = Image.new("RGB", (width, height + CAPTION), CAPTION_COLOURS[0])
    whole.paste(image.reduce(2))
    font = ImageFont.load_default(CAPTION * 0.55)
    ImageDraw.Draw(whole).text((width / 2, height + CAPTION / 2), caption, CAPTION_COLOURS[1], font, anchor="mm")
    return whole


def sizes() -> dict[Path, int]:
    """Return the size of each picture in bytes."""
    return {path: path.stat().st_size for path in sorted(FOLDER.iterdir())}


def _image(screenshot: bytes) -> Image:
    from PIL import Image

    return Image.open(io.BytesIO(screenshot)).convert("RGB")


def _stacked(images: Sequence[Image]) -> Image:
    """Return one image with all of them, which has the colours of all."""
    from PIL import Image

    width, height = images[0].size
    whole = Image.new("RGB", (width, height * len(images)))
    for number, image in enumerate(images):
        whole.paste(image, (0, number * height))
    return whole


def _quantized(image: Image, colours: int) -> Image:
    """Return an image with a palette, without dithering; this method keeps colours of small areas."""
    from PIL import Image

    return image.quantize(colours, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)


def _write(name: str, data: bytes) -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / name).write_bytes(data)
