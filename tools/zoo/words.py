"""Architectures of transformers that take words and sounds, small, with seeded weights."""

from __future__ import annotations

from torch import nn

from edgekit.model.spec import Axis, Input, ModelSpec, Output
from tools.zoo.samples import BATCH, model, sounds, words
from tools.zoo.vision import CLASSES, HIDDEN, LOGITS, WIDE

VOCABULARY, LENGTH = 200, 12
TOKENS = Axis(LENGTH, 2, 16)
WORDS = {"vocab_size": VOCABULARY, "max_position_embeddings": 32}


def bert() -> ModelSpec:
    import transformers as t

    return _words("bert", t.BertForSequenceClassification(t.BertConfig(**WIDE, **CLASSES, **WORDS)), LOGITS)


def distilbert() -> ModelSpec:
    import transformers as t

    config = t.DistilBertConfig(**CLASSES, **WORDS, dim=32, n_layers=2, n_heads=4, hidden_dim=64)
    return _words("distilbert", t.DistilBertForTokenClassification(config), LOGITS)


def clip_text() -> ModelSpec:
    import transformers as t

    config = t.CLIPTextConfig(**WIDE, **WORDS, projection_dim=16, eos_token_id=VOCABULARY - 1)
    outputs = (Output("text_embeds", role="embedding"),)
    return _words("clip-text", t.CLIPTextModelWithProjection(config), outputs)


def gpt2() -> ModelSpec:
    import transformers as t

    config = t.GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=4, use_cache=False)
    return _words("gpt2", t.GPT2LMHeadModel(config), LOGITS, mask=False)


def t5_encoder() -> ModelSpec:
    import transformers as t

    config = t.T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, use_cache=False)
    return _words("t5-encoder", t.T5EncoderModel(config), HIDDEN)


def whisper_encoder() -> ModelSpec:
    import transformers as t
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


def wav2vec2() -> ModelSpec:
    import transformers as t

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


def _words(name: str, module: nn.Module, outputs: tuple[Output, ...], mask: bool = True) -> ModelSpec:
    ids = Input("input_ids", ("batch", "tokens"), dtype="int64", low=0, high=VOCABULARY - 1)
    masks = Input("attention_mask", ("batch", "tokens"), dtype="int64", low=1, high=1)
    axes = {"batch": BATCH, "tokens": TOKENS}
    inputs = (ids, masks) if mask else (ids,)
    return model(name, module, inputs, outputs, words(VOCABULARY, LENGTH, mask), axes)
