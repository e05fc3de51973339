"""Estimates of token counts against real tokenizers, and of images against the vendors' formulae."""

from __future__ import annotations

import base64
import random
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aar.core.image_tokens import UNKNOWN_SIZE, image_size, image_tokens
from aar.core.tokens import estimate_message, estimate_text
from aar.protocol.messages import ImageBlock, Message, TextBlock, ToolResultBlock

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    [
        *ROOT.glob("aar/**/*.py"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("tests/core/*.py"),
        ROOT / "pyproject.toml",
    ]
)
WORDS = {
    "chinese": "这是 一个 关于 软件 工程 的 长 句子 我们 需要 估计 它的 标记 数量 以 避免 请求 失败 文件 测试 函数 错误".split(),
    "japanese": "これは 日本語 の 文章 です トークン 数を 推定 する ために 使います カタカナ テスト 関数 エラー".split(),
    "korean": "이것은 한국어 문장 입니다 토큰 수를 추정하기 위해 사용합니다 파일 함수 오류".split(),
    "russian": "Это русское предложение которое мы используем для оценки числа токенов файл функция ошибка".split(),
    "arabic": "هذه جملة عربية نستخدمها لتقدير عدد الرموز في النص الطويل ملف دالة خطأ".split(),
    "hindi": "यह हिंदी का एक वाक्य है जिसका उपयोग हम टोकन की संख्या का अनुमान लगाने".split(),
    "german": "Dies ist ein deutscher Satz über Softwareentwicklung Größenverhältnisse und Übungen Fehlerbehandlung".split(),
    "english": "the quick brown fox jumps over a lazy dog while internationalization considerations remain".split(),
}  # fmt: skip


@cache
def encoding(name: str) -> Any:
    # Loads its tables for seconds, which a worker that runs other tests should not.
    return pytest.importorskip("bpe_openai").get_encoding(name)


def real(text: str) -> int:
    """Return what the greedier of two real tokenizers counts."""
    return max(len(encoding(name).encode(text)) for name in ("o200k_base", "cl100k_base"))


def test_no_file_of_this_project_is_thought_shorter_than_it_is_nor_much_longer() -> None:
    ratios = {
        path.name: estimate_text(text) / real(text)
        for path in FILES
        if len(text := path.read_text()[:8000]) > 300
    }
    assert len(ratios) > 60
    assert min(ratios.values()) > 0.97, min(ratios, key=ratios.__getitem__)
    assert max(ratios.values()) < 1.6, max(ratios, key=ratios.__getitem__)


@pytest.mark.parametrize("language", WORDS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_prose_of_many_languages_is_not_thought_shorter_than_it_is(language: str, data: Any) -> None:
    words = data.draw(st.permutations(WORDS[language])) * 3
    text = ("" if language in ("chinese", "japanese") else " ").join(words)
    assert estimate_text(text) >= 0.93 * real(text)


@pytest.mark.parametrize("kind", ["base64", "hex", "digits", "json", "signs", "emoji", "paths"])
def test_dense_text_is_not_thought_shorter_than_it_is(kind: str) -> None:
    chance = random.Random(7)
    text = {
        "base64": base64.b64encode(chance.randbytes(3000)).decode(),
        "hex": chance.randbytes(1500).hex(),
        "digits": " ".join(str(chance.randrange(10**9)) for _ in range(300)),
        "json": "".join(f'{{"id": {k}, "n": [{k * 1.5}, null], "key_{k}": "v-{k}"}},' for k in range(150)),
        "signs": "".join(chance.choice("{}[]();:=+-*/<>!@#$%^&|~") for _ in range(1500)),
        "emoji": "😀🚀👩‍💻🎉🔥✅❌" * 40,
        "paths": "\n".join(
            f"aar/x{k}/test_{k:03}.py:{k}:{k % 7}: E{k} sha256={k * 7919:x}" for k in range(150)
        ),
    }[kind]
    margin = 0.75 if kind == "signs" else 0.9  # a soup of signs is no text that anybody writes
    assert estimate_text(text) >= margin * real(text)


def png(width: int, height: int) -> str:
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return base64.b64encode(
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))
    ).decode()


def jpeg(width: int, height: int) -> str:
    exif = b"\xff\xe1" + struct.pack(">H", 2002) + b"e" * 2000
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\0" * 9
    return base64.b64encode(b"\xff\xd8" + exif + frame).decode()


def webp(width: int, height: int) -> str:
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return base64.b64encode(b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + size).decode()


def gif(width: int, height: int) -> str:
    return base64.b64encode(b"GIF89a" + struct.pack("<HH", width, height) + b"\0" * 20).decode()


@pytest.mark.parametrize("make", [png, jpeg, webp, gif])
@given(width=st.integers(1, 16_000), height=st.integers(1, 16_000))
def test_the_size_of_an_image_is_read_from_its_header(make: Any, width: int, height: int) -> None:
    assert image_size(make(width, height)) == (width, height)
    assert 85 < image_tokens(make(width, height)) <= 10_000


@given(st.binary(max_size=200))
def test_a_broken_image_is_taken_for_a_large_one(data: bytes) -> None:
    text = base64.b64encode(data).decode()
    if image_size(text) is None:
        assert image_tokens(text) == UNKNOWN_SIZE
    assert image_tokens("no base64 !") == UNKNOWN_SIZE


@pytest.mark.parametrize(
    ("size", "least"),
    [
        ((1092, 1092), 1590),
        ((200, 200), 258),
        ((1000, 1000), 1334),
        ((2048, 4096), 1105),
        ((4096, 4096), 3200),
    ],
)
def test_an_image_is_at_least_what_each_vendor_says(size: tuple[int, int], least: int) -> None:
    assert image_tokens(png(*size)) >= least


def test_the_base64_of_an_image_is_not_counted_as_text() -> None:
    image = ImageBlock(media_type="image/png", data=png(640, 480) + "A" * 400_000)
    result = ToolResultBlock(call_id="c", output="seen", images=(image,))
    for block in (image, result):
        message = Message(role="user", content=(TextBlock(text="look"), block))
        assert estimate_message(message) < 1_000
