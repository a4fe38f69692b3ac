"""Trained networks of sound, on speech of espeak-ng (`apt-get install espeak-ng`) and on tones."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.model.overrides import words_of
from edgekit.model.sources.onnx import spec_of_onnx
from edgekit.model.spec import Array, Axis, EvaluationSet, Input, ModelSpec
from tools.zoo import shipped
from tools.zoo.shipped import home_of
from tools.zoo.trained.keep import keep_set
from tools.zoo.trained.sentences import CALIBRATION, HELD_OUT, sentences

RATE = 16_000
SPEAKERS = ("Alex", "Andy", "Annie", "Belinda", "Diogo", "Gene", "Hugo", "Jacky", "Lee", "Linda", "Mario", "Steph")
OTHER_SPEAKERS = (
    "Adam",
    "Alicia",
    "Boris",
    "Caleb",
    "David",
    "Denis",
    "Edward",
    "Henrique",
    "Marco",
    "Mike",
    "Rob",
    "Zac",
)
ACCENTS = ("en-us", "en-gb", "en-gb-scotland")
UTTERANCES = 12
"""Sentences of each speaker."""
FRAMES, MELS, WINDOW, HOP = 160, 40, 400, 160
"""Of a spectrogram of the voice encoder: 1.6 s in steps of 10 ms."""
LOUDNESS = -30.0
"""dB of full scale, to which resemblyzer raises an utterance."""
PITCHES, CENTS, LOWEST = 360, 20.0, 1997.3794084376191
"""CREPE's bins: their number, their step, and the first one above 10 Hz in cents."""
NEAR = 50.0
"""Cents: the pitch of a frame is right within a quarter tone, as CREPE's authors count it."""
CHUNK, CONTEXT = 512, 64
"""Samples that silero's detector takes at once, behind the last ones of the previous chunk."""
SPOKEN = 0.05
"""Share of the loudest chunk's root mean square above which a chunk is speech."""


def voice_encoder() -> ModelSpec:
    """Return resemblyzer's encoder of voices on 1.6 s of speech; the truth is the speaker."""
    base = shipped.voice_encoder()
    return replace(
        base,
        inputs=(Input("mels", ("batch", FRAMES, MELS), low=0.0, high=10.0),),
        axes={"batch": Axis(1, 1, 3)},
        evaluation=functools.partial(_utterances, SPEAKERS, HELD_OUT),
        calibration=lambda count: _first(_utterances(OTHER_SPEAKERS, CALIBRATION), count),
    )


def equal_error_rate(outputs: Mapping[str, Array], truth: Array) -> float:
    """Return 1 - the equal error rate over all pairs of utterances."""
    (vectors,) = outputs.values()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    first, second = np.triu_indices(len(unit), 1)
    scores, same = (unit[first] * unit[second]).sum(1), truth[first] == truth[second]
    order = np.argsort(scores)
    # At each threshold: pairs of one speaker below it, and pairs of two above it.
    missed = np.cumsum(same[order]) / same.sum()
    accepted = 1.0 - np.cumsum(~same[order]) / (~same).sum()
    at = int(np.argmin(np.abs(missed - accepted)))
    return 1.0 - float(missed[at] + accepted[at]) / 2.0


def crepe() -> ModelSpec:
    """Return CREPE tiny on noisy tones; the truth is the pitch in cents above 10 Hz."""

    def tones(count: int, seed: int) -> EvaluationSet:
        draw = np.random.default_rng(seed)
        pitch = 60.0 * 2.0 ** draw.uniform(0.0, 4.0, count)
        time = np.arange(1024) / RATE
        overtones = np.arange(1, 7)
        heights = draw.uniform(0.1, 1.0, (count, 6)) / overtones
        phases = draw.uniform(0, 2 * np.pi, (count, 6))
        waves = np.sin(2 * np.pi * pitch[:, None, None] * overtones[:, None] * time + phases[:, :, None])
        sound = (heights[:, :, None] * waves * (pitch[:, None, None] * overtones[:, None] < RATE / 2)).sum(1)
        noise = sound.std(1, keepdims=True) * 10.0 ** (-draw.uniform(-10.0, 15.0, (count, 1)) / 20.0)
        sound = sound + noise * draw.normal(size=sound.shape)
        sound = (sound - sound.mean(1, keepdims=True)) / sound.std(1, keepdims=True)
        names = tuple(f"{value:.0f} Hz" for value in pitch)
        truth = 1200.0 * np.log2(pitch / 10.0)
        return EvaluationSet({"frames": sound.clip(-3, 3).astype(np.float32)}, names, (), truth, _is_near, "pitch")

    return replace(
        shipped.crepe(),
        evaluation=functools.partial(tones, 200, 1),
        calibration=lambda count: _first(tones(count, 2), count),
    )


def silero() -> ModelSpec:
    """Return silero's detector of voices with the states that fp32 had; the truth is whether a chunk is speech."""
    path = home_of("silero_vad") / "data/silero_vad_16k_op15.onnx"
    axes = ("input:0=batch,1=sound:576..576", "state:1=batch")
    inputs = ("input:range=-1..1", "state:range=-1..1", "sr:range=16000..16000")
    spec = spec_of_onnx(path, words_of(axes, inputs, ("stateN:role=state",)))
    return replace(
        spec,
        name="silero",
        evaluation=lambda: _chunks(path, SPEAKERS[:8], HELD_OUT, 25),
        calibration=lambda count: _first_chunks(_chunks(path, OTHER_SPEAKERS[:8], CALIBRATION, 25), count),
    )


def _is_near(outputs: Mapping[str, Array], truth: Array) -> Array:
    cents = outputs["pitches"].argmax(1) * CENTS + LOWEST
    return np.asarray(np.abs(cents - truth.reshape(-1)) <= NEAR, np.float64)


def _is_speech(outputs: Mapping[str, Array], truth: Array) -> Array:
    return np.asarray((outputs["output"].reshape(len(truth)) > 0.5) == (truth.reshape(-1) > 0.5), np.float64)


def _utterances(speakers: Sequence[str], part: str) -> EvaluationSet:
    return keep_set(f"utterances-{part}", lambda: _make_utterances(speakers, part))


def _make_utterances(speakers: Sequence[str], part: str) -> EvaluationSet:
    texts = sentences(part)
    rows, names, truth = [], [], []
    for speaker, voice in enumerate(speakers):
        for number in range(UTTERANCES):
            text = texts[(speaker * UTTERANCES + number) % len(texts)]
            sound = speech(voice, text, speaker, number)
            rows.append(mel_spectrogram(sound)[:FRAMES])
            names.append(f"{voice} {number}")
            truth.append(speaker)
    return EvaluationSet({"mels": np.stack(rows)}, tuple(names), (), np.array(truth))


def speech(voice: str, text: str, speaker: int, number: int) -> Array:
    """Return a sentence of a voice, float32 at RATE, at least 1.7 s long.

    Args:
        voice: A variant of espeak-ng.
        text: The sentence.
        speaker: Number of the speaker, who has an accent and a pitch.
        number: Number of the sentence, which changes pitch and speed a little.
    """
    from scipy.io import wavfile
    from scipy.signal import resample_poly

    accent, pitch = ACCENTS[speaker % len(ACCENTS)], 20 + 37 * speaker % 60 + 2 * (number % 5)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        settings = ["-v", f"{accent}+{voice}", "-p", str(pitch), "-s", str(150 + 4 * (number % 6))]
        subprocess.run(["espeak-ng", *settings, "-w", str(path), f"{text}. {text}"], check=True, capture_output=True)
        rate, samples = wavfile.read(path)
    sound = resample_poly(samples.astype(np.float64) / 32768.0, RATE, int(rate))
    sound = np.resize(np.trim_zeros(sound), max(len(sound), 2 * RATE))
    sound *= max(10.0 ** (LOUDNESS / 20.0) / sound.std(), 1.0)
    return np.asarray(sound, np.float32)


def mel_spectrogram(sound: Array) -> Array:
    """Return the power in MELS bands of Slaney's scale, float32 [frames, MELS], as librosa computes it."""
    padded = np.pad(sound, WINDOW // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    power = np.abs(np.fft.rfft(frames * window, axis=1)) ** 2
    # Linear below 1 kHz, logarithmic above.
    corner, step = 15.0, np.log(6.4) / 27.0
    top = corner + np.log(RATE / 2 / 1000.0) / step
    mels = np.linspace(0.0, top, MELS + 2)
    edges = np.where(mels < corner, 200.0 / 3.0 * mels, 1000.0 * np.exp(step * (mels - corner)))
    frequencies = np.fft.rfftfreq(WINDOW, 1.0 / RATE)
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    bands = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (edges[2:] - edges[:-2]))[:, None]
    return np.asarray(power @ bands.T, np.float32)


def _chunks(path: Path, speakers: Sequence[str], part: str, count: int) -> EvaluationSet:
    whole = keep_set(f"chunks-{part}", lambda: _make_chunks(path, speakers, part, count))
    return replace(whole, metric=_is_speech, metric_name="frames")


def _make_chunks(path: Path, speakers: Sequence[str], part: str, count: int) -> EvaluationSet:
    """Return `count` chunks of each speaker in noise, with the states that fp32 had before them."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    draw, texts = np.random.default_rng(len(part)), sentences(part)
    inputs, states, truth, names = [], [], [], []
    for speaker, voice in enumerate(speakers):
        voiced = speech(voice, texts[speaker], speaker, speaker)[: 2 * RATE]
        clean = np.concatenate([np.zeros(RATE), voiced, np.zeros(RATE)])
        noisy = clean + draw.normal(size=clean.size) * voiced.std() * 10.0 ** (-draw.uniform(0, 15) / 20.0)
        sound = (noisy * draw.uniform(0.5, 3.0)).clip(-1, 1).astype(np.float32)
        total = (len(sound) - CONTEXT) // CHUNK
        loud = np.array([clean[CONTEXT + n * CHUNK :][:CHUNK].std() for n in range(total)])
        picked = set(draw.choice(np.arange(4, total), count, replace=False).tolist())
        state = np.zeros((2, 1, 128), np.float32)
        for number in range(total):
            chunk = sound[None, number * CHUNK : (number + 1) * CHUNK + CONTEXT]
            if number in picked:
                inputs.append(chunk)
                states.append(state)
                truth.append(loud[number] > SPOKEN * loud.max())
                names.append(f"{voice}, chunk {number}")
            _, state = session.run(None, {"input": chunk, "state": state, "sr": np.array(RATE)})
    arrays = {"input": np.concatenate(inputs), "state": np.concatenate(states).clip(-1, 1)}
    arrays["sr"] = np.full(len(names), RATE)
    return EvaluationSet(arrays, tuple(names), (), np.array(truth, np.int64))


def _first_chunks(whole: EvaluationSet, count: int) -> EvaluationSet:
    count = min(count, len(whole.names))
    arrays = {name: values[: count * (2 if name == "state" else 1)] for name, values in whole.inputs.items()}
    return EvaluationSet(arrays, whole.names[:count])


def _first(whole: EvaluationSet, count: int) -> EvaluationSet:
    return EvaluationSet({name: values[:count] for name, values in whole.inputs.items()}, whole.names[:count])
