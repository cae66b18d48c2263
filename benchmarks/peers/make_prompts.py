"""Prompts of exact lengths out of ordinary English: {"warm": [...], "p128": [...], "p512": [...]} of {ids, text}.

    python benchmarks/peers/make_prompts.py TOKENIZER_JSON OUT.json

wllama takes text alone, so every text is checked to become exactly these tokens again.
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer

STORY = (
    "The lighthouse keeper climbed the stairs every evening to light the lamp. From the top he could see the fishing "
    "boats coming home, the long line of the coast, and the clouds gathering over the sea. In winter the wind was so "
    "strong that the whole tower seemed to move, and he would sit close to the stove and read old newspapers until "
    "morning. He had been there for eleven years, and in all that time only two ships had been lost. "
)
TOPICS = "rivers machines music markets gardens libraries trains mountains bakers maps bridges clocks".split()


def prompt(tokenizer: Tokenizer, length: int, topic: int) -> dict:
    parts = [STORY.replace("lighthouse", TOPICS[(topic + i) % len(TOPICS)]) for i in range(length // 60 + 1)]
    text = f"Write a long answer about {TOPICS[topic % len(TOPICS)]}. " + "".join(parts)
    ids = tokenizer.encode(text, add_special_tokens=False).ids[:length]
    text = tokenizer.decode(ids)
    if len(ids) != length or tokenizer.encode(text, add_special_tokens=False).ids != ids:
        raise SystemExit(f"no prompt of {length} tokens with topic {topic}")
    return {"ids": ids, "text": text}


def main(tokenizer_path: str, out: str) -> None:
    tokenizer = Tokenizer.from_file(tokenizer_path)
    prompts = {
        "warm": [prompt(tokenizer, 16, 11)],
        "p128": [prompt(tokenizer, 128, topic) for topic in range(6)],
        "p512": [prompt(tokenizer, 512, topic + 3) for topic in range(6)],
    }
    Path(out).write_text(json.dumps(prompts))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
