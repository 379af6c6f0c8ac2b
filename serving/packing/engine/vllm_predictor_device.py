"""The process of a length predictor beside vLLM (pliant/packing/vllm/forecasts.py says what goes to and fro).

    python -m pliant.serving.packing.engine.vllm_predictor_device PREDICTOR TOKENIZER

PREDICTOR is the folder of a predictor's artifact, TOKENIZER that of the served model, or its tokenizer.json.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from queue import SimpleQueue

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is loaded: the engine needs the processor's cores

MAX_TEXTS = 32  # in one prediction
LAST = 1024  # tokens of a prompt, its last, that are read


def main(predictor: str, tokenizer: str) -> int:
    """Answer lines from stdin until it is closed."""
    import torch
    from tokenizers import Tokenizer

    from pliant.packing.artifact import Predictor
    from pliant.packing.engine.model import load
    from pliant.registry import codec

    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)
    model = load(codec.load(Predictor, Path(predictor)), "cpu")
    path = Path(tokenizer)
    texts = Tokenizer.from_file(str(path / "tokenizer.json" if path.is_dir() else path))
    model.predict(["a prompt", "a longer prompt of several words"])
    _say("ready")
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    while True:
        rows = [lines.get()]
        while len(rows) < MAX_TEXTS and not lines.empty():
            rows.append(lines.get())
        questions = [json.loads(row) for row in rows if row]
        prompts = texts.decode_batch([row["ids"][-LAST:] for row in questions], skip_special_tokens=True)
        for row, forecast in zip(questions, model.predict(prompts), strict=True):
            answer = {"name": row["name"], "tokens": list(forecast.tokens), "bucket": forecast.bucket}
            _say(json.dumps(answer))
        if "" in rows:
            return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _read(lines: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    lines.put("")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
