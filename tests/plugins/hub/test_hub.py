"""The hub folder of a task where others load it: transformers.js by its own pipelines in Chromium, optimum in Python.

Each answers what transformers answers.
"""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import edgekit
from edgekit.runtime.ort_session import OrtSession
from tests import decoders
from tests.core.pipeline.test_webgpu_place import software

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

PACKAGES = Path(__file__).parent / "transformers_js"
LACKING = "transformers.js is missing (500 MB): npm ci --ignore-scripts --prefix tests/plugins/hub/transformers_js"
ORIGIN = "http://localhost/"
TYPES = {".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm", ".json": "application/json"}
LOADED = """
  const transformers = await import("/@huggingface/transformers/dist/transformers.js");
  const { pipeline, env, AutoModelForCausalLM, AutoTokenizer, CLIPTextModelWithProjection, Tensor } = transformers;
  const { WhisperForConditionalGeneration } = transformers;
  Object.assign(env, { allowRemoteModels: false, allowLocalModels: true, useBrowserCache: false });
  env.localModelPath = "/models/";
  env.backends.onnx.wasm.wasmPaths = "/onnxruntime-web/dist/";
  env.backends.onnx.wasm.numThreads = 1;
"""
SCRIPT = f"""async ([task, model, given, options]) => {{{LOADED}
  const made = await pipeline(task, model, {{ dtype: "fp32", device: "wasm" }});
  return await made(...given, options);
}}"""
TOWER = f"""async ([model, texts]) => {{{LOADED}
  const read = await AutoTokenizer.from_pretrained(model);
  const tower = await CLIPTextModelWithProjection.from_pretrained(model, {{ dtype: "fp32", device: "wasm" }});
  return (await tower(read(texts, {{ padding: true }}))).text_embeds.tolist();
}}"""
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SPEECH = f"""async ([model, shape, values, options]) => {{{LOADED}
  const made = await WhisperForConditionalGeneration.from_pretrained(model, {{ dtype: "fp32", device: "wasm" }});
  const features = new Tensor("float32", Float32Array.from(values), shape);
  return (await made.generate({{ inputs: features, ...options }})).tolist()[0].map(Number);
}}"""
WORDS = [*SPECIAL, *"the a of train station leaves once upon time there was picture red green blue cat dog".split()]  # noqa: SIM905
TEXT = "the cat leaves a station"
COUNT = {"max_new_tokens": 64, "min_new_tokens": 64, "do_sample": False}
SHORT = {"max_new_tokens": 24, "min_new_tokens": 24, "do_sample": False}
SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def tokenizer(folder: Path) -> Any:
    """Words of a small vocabulary, saved into a model's folder."""
    from transformers import BertTokenizerFast

    (folder / "vocab.txt").write_text("\n".join(WORDS))
    made = BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=32)
    made.save_pretrained(folder)
    return made


def picture(size: int) -> tuple[str, torch.Tensor]:
    """A picture as a PNG's address, and as pixels that a processor of mean and deviation 0.5 makes of it."""
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (size, size, 3), np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    address = f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"
    return address, torch.from_numpy((pixels.transpose(2, 0, 1)[None] / 255 - 0.5) / 0.5).float()


def processor(folder: Path, size: int) -> None:
    from transformers import ViTImageProcessor

    sides = {"height": size, "width": size}
    ViTImageProcessor(size=sides, image_mean=[0.5] * 3, image_std=[0.5] * 3).save_pretrained(folder)


def classifier(folder: Path) -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    labels = {"id2label": {0: "dull", 1: "fine"}, "label2id": {"dull": 0, "fine": 1}}
    model = BertForSequenceClassification(BertConfig(**SMALL, **labels, vocab_size=len(WORDS))).eval()
    model.save_pretrained(folder)
    return model


def decoder(folder: Path) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"num_key_value_heads": 1, "vocab_size": len(WORDS), "max_position_embeddings": 128, "eos_token_id": 2}
    model = LlamaForCausalLM(LlamaConfig(**SMALL, **sizes)).eval()
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    return model


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """A page that finds transformers.js, its runtime and the hub folders of builds in tmp_path/builds."""
    modules = PACKAGES / "node_modules"
    if not modules.is_dir():
        pytest.skip(LACKING)

    def answer(route: Route) -> None:
        path = route.request.url.removeprefix(ORIGIN).partition("?")[0]
        model = path.removeprefix("models/").partition("/")
        file = tmp_path / "builds" / model[0] / "hub" / model[2] if path.startswith("models/") else modules / path
        if not path:
            route.fulfill(body="<!doctype html>", content_type="text/html")
        elif file.is_file():
            route.fulfill(body=file.read_bytes(), content_type=TYPES.get(file.suffix, "application/octet-stream"))
        else:
            route.fulfill(status=404)

    opened = browser.new_page()
    opened.route("**/*", answer)
    opened.goto(ORIGIN)
    yield opened
    opened.close()


CHOSEN = f"""async ([task, model, given]) => {{{LOADED}
  const ort = await import("/onnxruntime-web/dist/ort.bundle.min.mjs");
  ort.env.wasm.numThreads = 1;
  const {{ selftest }} = await import(`/models/${{model}}/edgekit-selftest.js`);
  const {{ device, dtype }} = await selftest(`/models/${{model}}/`, ort);
  return await (await pipeline(task, model, {{ device, dtype }}))(given);
}}"""


def exported(folder: Path, task: str, output: Path) -> str:
    build = edgekit.export(
        f"transformers:{folder}", task=task, targets=["onnx"], output=output / "builds", progress="none"
    )
    assert build["onnx"].verdict == "verified", build["onnx"].sentences
    return build.path.name


def test_a_classifier_of_texts(page: Page, tmp_path: Path) -> None:
    model = classifier(tmp_path / "bert")
    read = tokenizer(tmp_path / "bert")
    name = exported(tmp_path / "bert", "text-classification", tmp_path)
    with torch.no_grad():
        found = model(**read(TEXT, return_tensors="pt")).logits.softmax(-1)[0]
    for told in (
        page.evaluate(SCRIPT, ["text-classification", name, [TEXT], {}]),
        page.evaluate(CHOSEN, ["text-classification", name, TEXT]),
    ):
        assert told[0]["label"] == ["dull", "fine"][int(found.argmax())]
        assert told[0]["score"] == pytest.approx(float(found.max()), abs=1e-5)


def test_a_decoder_generates_the_same_text(page: Page, tmp_path: Path) -> None:
    model = decoder(tmp_path / "llama")
    read = tokenizer(tmp_path / "llama")
    name = exported(tmp_path / "llama", "text-generation-with-past", tmp_path)
    given = read(TEXT, return_tensors="pt", add_special_tokens=False)
    found = model.generate(input_ids=given.input_ids, attention_mask=given.attention_mask, **COUNT)
    told = page.evaluate(SCRIPT, ["text-generation", name, [TEXT], {**COUNT, "add_special_tokens": False}])
    assert told[0]["generated_text"].split() == read.decode(found[0], skip_special_tokens=True).split()


GENERATED = f"""async ([model, prompts, count, device]) => {{{LOADED}
  const decoder = await AutoModelForCausalLM.from_pretrained(model, {{ dtype: "q4", device }});
  const rows = [];
  for (const prompt of prompts) {{
    const shape = [1, prompt.length];
    const inputs = new Tensor("int64", prompt.map(BigInt), shape);
    const attention_mask = new Tensor("int64", prompt.map(() => 1n), shape);
    const lengths = {{ max_new_tokens: count, min_new_tokens: count, do_sample: false }};
    const tokens = await decoder.generate({{ inputs, attention_mask, ...lengths }});
    rows.push(tokens.tolist()[0].slice(prompt.length).map(Number));
  }}
  return rows;
}}"""


@pytest.mark.nightly
def test_four_bits_generate_the_same_tokens_on_the_cpu_and_in_chromium_on_wasm_and_webgpu(
    page: Page, tmp_path: Path
) -> None:
    decoders.trained(tmp_path / "llama")
    tokenizer(tmp_path / "llama")
    source = f"transformers:{tmp_path / 'llama'}"
    build = edgekit.export(
        source, task="text-generation-with-past", targets=["onnx-int4"], output=tmp_path / "builds", progress="none"
    )
    assert build["onnx-int4"].verdict == "verified", build["onnx-int4"].sentences
    model = build.path / "hub" / "onnx" / "model_q4.onnx"
    tokens = decoders.generate(OrtSession(model))
    assert all(len(set(row)) > 3 for row in tokens)
    prompts = [list(prompt) for prompt in decoders.PROMPTS]
    for device in ("wasm", "webgpu"):
        assert page.evaluate(GENERATED, [build.path.name, prompts, decoders.COUNT, device]) == tokens, device
    if variables := software():
        command = [sys.executable, "-m", "tests.decoders", str(model)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables}, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["same tokens"]


def test_a_classifier_of_pictures(page: Page, tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    config = ViTConfig(**SMALL, image_size=32, patch_size=16, num_labels=5)
    model = ViTForImageClassification(config).eval()
    model.save_pretrained(tmp_path / "vit")
    processor(tmp_path / "vit", 32)
    name = exported(tmp_path / "vit", "image-classification", tmp_path)
    address, pixels = picture(32)
    with torch.no_grad():
        found = model(pixel_values=pixels).logits.softmax(-1)[0]
    told = page.evaluate(SCRIPT, ["image-classification", name, [address], {"top_k": 5}])
    assert [row["label"] for row in told] == [f"LABEL_{int(at)}" for at in found.argsort(descending=True)]
    assert [row["score"] for row in told] == pytest.approx(sorted(found.tolist(), reverse=True), abs=1e-5)


def test_two_towers_rank_the_same_texts_for_a_picture(page: Page, tmp_path: Path) -> None:
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(0)
    text = {**SMALL, "vocab_size": len(WORDS), "max_position_embeddings": 32, "eos_token_id": 3}
    config = CLIPConfig(text_config=text, vision_config={**SMALL, "image_size": 32, "patch_size": 8}, projection_dim=8)
    model = CLIPModel(config).eval()
    model.save_pretrained(tmp_path / "clip")
    processor(tmp_path / "clip", 32)
    read = tokenizer(tmp_path / "clip")
    name = exported(tmp_path / "clip", "zero-shot-image-classification", tmp_path)
    address, pixels = picture(32)
    colours = ["red", "green", "blue"]
    with torch.no_grad():
        given = read([f"picture of {colour}" for colour in colours], return_tensors="pt")
        found = model(input_ids=given.input_ids, attention_mask=given.attention_mask, pixel_values=pixels)
    scores = found.logits_per_image.softmax(-1)[0].tolist()
    asked = [address, colours], {"hypothesis_template": "picture of {}"}
    told = page.evaluate(SCRIPT, ["zero-shot-image-classification", name, *asked])
    assert {row["label"]: row["score"] for row in told} == pytest.approx(
        dict(zip(colours, scores, strict=True)), abs=1e-4
    )


OPTIMUM = """
import json, sys
import torch
from optimum import onnxruntime

kind, folder, given, options = json.loads(sys.argv[1])
model = getattr(onnxruntime, kind).from_pretrained(folder, subfolder="onnx", **options.pop("files", {}))
inputs = {name: torch.tensor(rows) for name, rows in given.items()}
answer = model.generate(**inputs, **options) if options else model(**inputs).logits
print(json.dumps(answer.tolist()))
"""


@pytest.fixture
def optimum() -> str:
    """The Python of an environment with optimum."""
    packages = "optimum-onnx==0.1.0 transformers==4.57.6 onnxruntime==1.32.0"
    if not (python := os.environ.get("EDGEKIT_OPTIMUM")):
        pytest.skip(f"needs optimum: pip install {packages} into an environment; EDGEKIT_OPTIMUM names its Python")
    return python


def in_optimum(python: str, kind: str, folder: Path, given: dict[str, Any], options: dict[str, Any]) -> Any:
    asked = json.dumps([kind, str(folder), {name: tensor.tolist() for name, tensor in given.items()}, options])
    told = subprocess.run([python, "-c", OPTIMUM, asked], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout.splitlines()[-1])


def test_optimum_classifies_texts(optimum: str, tmp_path: Path) -> None:
    model = classifier(tmp_path / "bert")
    given = {"input_ids": torch.tensor([[5, 6, 7], [8, 9, 0]]), "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}
    with torch.no_grad():
        found = model(**given).logits
    name = exported(tmp_path / "bert", "text-classification", tmp_path)
    told = in_optimum(optimum, "ORTModelForSequenceClassification", tmp_path / "builds" / name / "hub", given, {})
    assert np.allclose(told, found, atol=1e-5)


def test_optimum_generates_the_same_tokens(optimum: str, tmp_path: Path) -> None:
    model = decoder(tmp_path / "llama")
    given = {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.tensor([[1, 1, 1]])}
    found = model.generate(**given, **COUNT)
    name = exported(tmp_path / "llama", "text-generation-with-past", tmp_path)
    assert (
        in_optimum(optimum, "ORTModelForCausalLM", tmp_path / "builds" / name / "hub", given, COUNT) == found.tolist()
    )


def translator(folder: Path) -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(1)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "vocab_size": len(WORDS)}
    model = T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0, pad_token_id=0)).eval()
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("merged", [True, False])
def test_optimum_generates_with_an_encoder_and_a_decoder(optimum: str, tmp_path: Path, merged: bool) -> None:
    model = translator(tmp_path / "t5")
    given = {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.tensor([[1, 1, 1]])}
    found = model.generate(**given, **SHORT)
    name = exported(tmp_path / "t5", "text2text-generation-with-past", tmp_path)
    folder, options = tmp_path / "builds" / name / "hub", {**SHORT, "files": {"use_merged": merged}}
    assert in_optimum(optimum, "ORTModelForSeq2SeqLM", folder, given, options) == found.tolist()


def test_an_encoder_and_a_decoder_generate_the_same_text(page: Page, tmp_path: Path) -> None:
    model = translator(tmp_path / "t5")
    read = tokenizer(tmp_path / "t5")
    name = exported(tmp_path / "t5", "text2text-generation-with-past", tmp_path)
    given = read(TEXT, return_tensors="pt")
    found = model.generate(input_ids=given.input_ids, attention_mask=given.attention_mask, **SHORT)
    told = page.evaluate(SCRIPT, ["text2text-generation", name, [TEXT], SHORT])
    assert told[0]["generated_text"].split() == read.decode(found[0], skip_special_tokens=True).split()


def test_speech_is_transcribed_the_same(page: Page, tmp_path: Path) -> None:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(0)
    sizes = {"d_model": 16, "vocab_size": 40, "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 48}
    sides = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 1), ("ffn_dim", 32))}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "suppress_tokens": None}
    tokens = {"decoder_start_token_id": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = WhisperConfig(**sizes, **sides, **heads, **tokens, begin_suppress_tokens=None)
    model = WhisperForConditionalGeneration(config).eval()
    model.save_pretrained(tmp_path / "whisper")
    name = exported(tmp_path / "whisper", "automatic-speech-recognition-with-past", tmp_path)
    features = torch.rand(1, 8, 40) * 2 - 1
    found = model.generate(input_features=features, **SHORT)[0].tolist()
    told = page.evaluate(SPEECH, [name, list(features.shape), features.flatten().tolist(), SHORT])
    assert told[-24:] == found[-24:]
