"""Architectures of transformers that take words and sounds, small, with seeded weights."""

from __future__ import annotations

from typing import Any

import transformers as t
from torch import Tensor, nn

from edgekit.model.spec import Axis, Input, ModelSpec, Output
from tools.zoo.samples import BATCH, both, model, pictures, sounds, vectors, words
from tools.zoo.vision import CLASSES, HIDDEN, LOGITS, WIDE

VOCABULARY, LENGTH = 200, 12
TOKENS = Axis(LENGTH, 2, 16)
AXES = {"batch": BATCH, "tokens": TOKENS}
IDS = Input("input_ids", ("batch", "tokens"), dtype="int64", low=0, high=VOCABULARY - 1)
MASK = Input("attention_mask", ("batch", "tokens"), dtype="int64", low=1, high=1)
SOURCE = 10
"""Vectors that a decoder is given of its source."""
WORDS = {"vocab_size": VOCABULARY, "max_position_embeddings": 32}


class Decoder(nn.Module):
    """Words so far and what the encoder made of the source -> the next word's logits."""

    def __init__(self, whole: Any) -> None:
        super().__init__()
        self.decoder, self.head = whole.get_decoder(), whole.get_output_embeddings()

    def forward(self, input_ids: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        said = self.decoder(input_ids, encoder_hidden_states=encoder_hidden_states, use_cache=False)
        return self.head(said.last_hidden_state)  # type: ignore[no-any-return]


class Towers(nn.Module):
    """A picture and a text -> an embedding of each."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        said = self.whole(pixel_values=pixel_values, input_ids=input_ids, attention_mask=attention_mask)
        return said.image_embeds, said.text_embeds


def bert() -> ModelSpec:
    return _words("bert", t.BertForSequenceClassification(t.BertConfig(**WIDE, **CLASSES, **WORDS)), LOGITS)


def distilbert() -> ModelSpec:
    config = t.DistilBertConfig(**CLASSES, **WORDS, dim=32, n_layers=2, n_heads=4, hidden_dim=64)
    return _words("distilbert", t.DistilBertForTokenClassification(config), LOGITS)


def clip_text() -> ModelSpec:
    config = t.CLIPTextConfig(**WIDE, **WORDS, projection_dim=16, eos_token_id=VOCABULARY - 1)
    outputs = (Output("text_embeds", role="embedding"),)
    return _words("clip-text", t.CLIPTextModelWithProjection(config), outputs)


def gpt2() -> ModelSpec:
    config = t.GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=4, use_cache=False)
    return _words("gpt2", t.GPT2LMHeadModel(config), LOGITS, mask=False)


def t5_encoder() -> ModelSpec:
    config = t.T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, use_cache=False)
    return _words("t5-encoder", t.T5EncoderModel(config), HIDDEN)


def whisper_encoder() -> ModelSpec:
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = t.WhisperConfig(
        num_mel_bins=16,
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=64,
        max_source_positions=32,
    )
    inputs = (Input("input_features", ("batch", 16, 64), low=-1.0),)
    return model("whisper-encoder", WhisperEncoder(config), inputs, HIDDEN, sounds("input_features", (16, 64)))


def t5_decoder() -> ModelSpec:
    config = t.T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    return _decoder("t5-decoder", t.T5ForConditionalGeneration(config), "source")


def whisper_decoder() -> ModelSpec:
    config = t.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=1,
        encoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_layers=2,
        decoder_attention_heads=4,
        decoder_ffn_dim=64,
        max_target_positions=32,
        pad_token_id=0,
    )
    return _decoder("whisper-decoder", t.WhisperForConditionalGeneration(config), SOURCE)  # sounds have one length


def clip() -> ModelSpec:
    text = {**WIDE, **WORDS, "eos_token_id": VOCABULARY - 1}
    vision = {**WIDE, "image_size": 32, "patch_size": 8}
    config = t.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    inputs = (Input("pixel_values", ("batch", 3, 32, 32), kind="image"), IDS, MASK)
    outputs = tuple(Output(f"{name}_embeds", role="embedding") for name in ("image", "text"))
    samples = both(pictures("pixel_values", 32), words(VOCABULARY, LENGTH))
    return model("clip", Towers(t.CLIPModel(config)), inputs, outputs, samples, AXES)


def wav2vec2() -> ModelSpec:
    config = t.Wav2Vec2Config(
        **WIDE,
        vocab_size=5,
        conv_dim=[16, 16, 16],
        conv_kernel=[10, 3, 3],
        conv_stride=[5, 2, 2],
        num_feat_extract_layers=3,
        feat_extract_norm="layer",  # as the large ones: norms over time make of a constant sound what rounding makes it
        do_stable_layer_norm=True,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    inputs = (Input("input_values", ("batch", 1600), low=-1.0),)
    return model("wav2vec2", t.Wav2Vec2ForCTC(config), inputs, LOGITS, sounds("input_values", (1600,)))


def _decoder(name: str, whole: nn.Module, source: int | str) -> ModelSpec:
    states = Input("encoder_hidden_states", ("batch", source, 32), low=-2.0, high=2.0)
    axes = AXES | ({source: Axis(SOURCE, 2, 16)} if isinstance(source, str) else {})
    samples = both(words(VOCABULARY, LENGTH, mask=False), vectors(encoder_hidden_states=(SOURCE, 32)))
    return model(name, Decoder(whole), (IDS, states), LOGITS, samples, axes)


def _words(name: str, module: nn.Module, outputs: tuple[Output, ...], mask: bool = True) -> ModelSpec:
    inputs = (IDS, MASK) if mask else (IDS,)
    return model(name, module, inputs, outputs, words(VOCABULARY, LENGTH, mask), AXES)
