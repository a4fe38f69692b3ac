"""A small decoder that was trained on a language of its own, and 64 tokens of it in the places where 4 bits run.

`python -m tests.decoders model.onnx` generates on the CPU and on WebGPU, and prints whether the tokens are the same.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runtime.ort_session import OrtSession
from edgekit_hub.decoder import Cache, Greedy, Text
from edgekit_targets.onnx.webgpu import WebgpuRuntime

if TYPE_CHECKING:
    from edgekit.model.parts import Session

WORDS, FIRST, COUNT = 22, 5, 64
"""Tokens, the first that is a word, and how many are generated."""
WIDTH, LAYERS, HEADS, GROUPS = 128, 2, 4, 2
STEPS, ROWS, LENGTH = 150, 32, 40
CACHE = tuple(Cache(f"{layer}.{kind}", GROUPS, WIDTH // HEADS) for layer in range(LAYERS) for kind in ("key", "value"))
PROMPTS = ((7, 9), (12, 5, 16), (20, 21, 8, 6), (6, 6))


def trained(folder: Path) -> Any:
    """Return a Llama that continues each pair of words with the word that follows it in a random table."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        vocab_size=WORDS,
        max_position_embeddings=128,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)
    table = torch.randint(FIRST, WORDS, (WORDS, WORDS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(STEPS):
        words = list(torch.randint(FIRST, WORDS, (2, ROWS)))
        while len(words) < LENGTH:
            words.append(table[words[-2], words[-1]])
        rows = torch.stack(words, 1)
        loss = torch.nn.functional.cross_entropy(model(rows).logits[:, 1:-1].flatten(0, 1), rows[:, 2:].flatten())
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    assert float(loss.detach()) < 0.1
    model.generation_config.eos_token_id = None
    model.eval().save_pretrained(folder)
    return model


def generate(session: Session, prompts: Sequence[Sequence[int]] = PROMPTS) -> list[list[int]]:
    """Return COUNT tokens after each prompt."""
    greedy = Greedy(CACHE, True, COUNT)
    return [greedy({"model": session}, Text([prompt]))["tokens"][0].tolist() for prompt in prompts]


def main() -> None:
    """Generate in both places, and compare all logits of the first run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    model = parser.parse_args().model
    cpu, gpu = OrtSession(model), WebgpuRuntime(model)
    empty = {f"past_key_values.{c.name}": np.zeros((1, c.heads, 0, c.width), np.float32) for c in CACHE}
    ids = np.array([PROMPTS[2]])
    first = {"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": np.arange(ids.shape[1])[None]}
    logits = [session.run(first | empty)["logits"] for session in (cpu, gpu)]
    record = {
        "device": gpu.device,
        **gpu.facts(),
        "same tokens": generate(cpu) == generate(gpu),
        "tokens": COUNT * len(PROMPTS),
        "largest difference of a logit": float(np.abs(logits[0] - logits[1]).max()),
        "largest logit": float(np.abs(logits[0]).max()),
    }
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
