"""Right inputs made wrong: a few bytes, a piece, a number or a word at a time."""

from __future__ import annotations

from random import Random

_NUMBERS = [0, 1, 7, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1]
_WORDS = [
    b"[" * 3000, b"{", b"]", b'"', b",", b":", b"null", b"NaN", b"-Infinity", b"1e999", b"-1", b"[[]]", b"{}", b"\0",
    b"\n", b"0", b"9" * 5000, b"${oc.env:HOME}", b"*a", b"&a ", b"!!python/object:os.system ", b"BF16", b"F8_E4M3",
    b"I64", b"U64", b"BOOL", b"__metadata__", b"\xff\xd8", b"\xff\xd9", b"IDAT", b"zTXt", b"GNU.sparse.map", b"path=",
]  # fmt: skip


def mutated(seed: bytes, random: Random, most: int = 6) -> bytes:
    """The seed after one or several changes, any of which may undo the one before."""
    content = bytearray(seed)
    for _ in range(random.randint(1, most)):
        place = random.randint(0, len(content))
        how = random.randrange(7)
        if how == 0 and content:
            content[place % len(content)] ^= 1 << random.randrange(8)
        elif how == 1 and content:
            content[place % len(content)] = random.randrange(256)
        elif how == 2:
            width = random.choice((1, 2, 4, 8))
            number = random.choice(_NUMBERS) % 2 ** (8 * width)
            content[place : place + width] = number.to_bytes(width, random.choice(("little", "big")))
        elif how == 3:
            del content[place : place + random.randint(1, 1 + len(content) // 2)]
        elif how == 4:
            piece = content[place : place + random.randint(1, 64)]
            where = random.randint(0, len(content))
            content[where:where] = piece * random.choice((1, 2, 30))
        elif how == 5:
            content[place:place] = random.choice(_WORDS)
        else:
            word = random.choice(_WORDS)
            content[place : place + len(word)] = word
    return bytes(content)
