"""What an artifact may differ by: one table of limits for each kind of precision.

The limits and where they come from:

- FP32 1e-4: what ONNX Runtime's own tests of exported transformers use across runtimes.
- FP32_DELEGATED 1e-3: what ExecuTorch's backend tests use where a delegate fuses and reorders (XNNPACK, WebGPU).
- FP16 1e-2, cosine 0.997, SNR 20 dB: the distance and quality defaults of NVIDIA Polygraphy, and our cap on a score.
- INT8 is judged by what it is for, ranks and chosen patches, since single scores move by a quantization step.

`verdict.py` widens an absolute limit to a small multiple of the reference's own noise where that is larger.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Limits on one artifact against the reference; None means the limit does not apply.

    Attributes:
        name: The row of the table, as reports print it.
        max_abs: Largest allowed absolute difference of a score, in units of the score.
        relative: For outputs of any scale: largest difference divided by the reference's peak magnitude.
        cosine: Smallest allowed cosine similarity of a whole map.
        snr_db: Smallest allowed signal-to-noise ratio of the scores, in dB.
        spearman: Smallest allowed rank correlation of a map (image by image).
        lost_mass: Largest allowed share of relevance mass lost at K (image by image).
        task_drop: Largest allowed drop of the task metric's mean, absolute.
        task_drop_worst: Largest allowed drop of the task metric on any one image, absolute.
        exact_ranking: Whether a top-K swap beyond the score tolerance, or a count off by more than rounding, fails.
    """

    name: str
    max_abs: float | None = None
    relative: float | None = None
    cosine: float | None = None
    snr_db: float | None = None
    spearman: float | None = None
    lost_mass: float | None = None
    task_drop: float | None = None
    task_drop_worst: float | None = None
    exact_ranking: bool = True


FP32 = Tolerance(name="fp32", max_abs=1e-4, relative=1e-4, task_drop=0.002)
FP32_DELEGATED = Tolerance(name="fp32, delegated", max_abs=1e-3, relative=1e-3, task_drop=0.002)
FP16 = Tolerance(name="fp16", max_abs=1e-2, relative=2e-2, cosine=0.997, snr_db=20.0, task_drop=0.002)
INT8 = Tolerance(
    name="int8",
    spearman=0.99,
    lost_mass=0.01,
    relative=None,
    cosine=0.99,
    task_drop=0.005,
    task_drop_worst=0.05,
    exact_ranking=False,
)
