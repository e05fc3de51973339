from __future__ import annotations

import re
from pathlib import Path

import pytest

import aar
from aar.protocol.images import IMAGE_SUFFIXES, IMAGE_TYPES, image_type

_HEADS = {
    "image/png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "image/jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "image/gif": b"GIF89a\1\0\1\0",
    "image/webp": b"RIFF\x24\0\0\0WEBPVP8 ",
}


@pytest.mark.parametrize("media_type", sorted(IMAGE_TYPES))
def test_every_type_of_image_is_known_by_its_first_bytes_and_not_by_fewer(media_type: str) -> None:
    head = _HEADS[media_type]
    assert image_type(head) == media_type
    assert image_type(head[:2]) is None
    assert image_type(b"RIFF\x24\0\0\0WAVE") is None
    assert media_type in IMAGE_SUFFIXES.values()


def test_the_types_of_images_stand_in_one_place() -> None:
    root = Path(aar.__file__).parent
    listing = [path for path in root.rglob("*.py") if re.search(r"""['"]image/webp['"]""", path.read_text())]
    assert [path.relative_to(root).as_posix() for path in listing] == ["protocol/images.py"]
