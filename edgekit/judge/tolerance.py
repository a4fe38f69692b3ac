"""What an artifact may differ by: one table of limits for each kind of precision.

The limits and where they come from:

- FP32 1e-4: what ONNX Runtime's own tests of exported transformers use across runtimes.
- FP32_DELEGATED 1e-3: what ExecuTorch's backend tests use where a delegate fuses and reorders (XNNPACK, WebGPU).
- FP16 1e-2, cosine 0.997, SNR 20 dB: the distance and quality defaults of NVIDIA Polygraphy, and our cap on a score.
- INT8 is judged by what it is for, ranks and chosen patches, since single scores move by a quantization step.

In units of the reference's own spread (`spread.py`), for every floating output but scores, of rows and channels:

- fp32 1e-3, delegated 1e-2, fp16 0.2 on the largest difference of a row: ten times the limits on scores, which
  spread by 0.1 to 0.3 of their range; for fp16 the 2e-2 of the peak, which is five to ten times the usual spread.
- INT8: error 0.3, a signal-to-noise ratio of 10.5 dB; independent errors of that size leave a correlation of
  1 / sqrt(1 + 0.3^2) = 0.958. Half of it for gain and offset: these move every decision the same way, and do not
  average out. Eight-bit graphs that keep their task's accuracy within 1 % (Nagel et al., A White Paper on Neural
  Network Quantization, 2021) are far inside.

What a role is for:

- Flips, wrong labels: INT8 1 % of the answers (MLPerf Inference asks for 99 % of the fp32 model's accuracy), fp16 0.2 %
  (its limit on a task metric), or a single answer of few. Gap: a class is only taken for one that the reference held to
  be as likely within twice the limit on differences; under INT8 within half of the spread of the classes.
- IoU of boxes and masks: COCO's strictest threshold is 0.95, so fp16 keeps 0.97; INT8 keeps 0.85 of boxes, which is
  between COCO's 0.75 and 0.95, and 0.9 of masks.
- Boxes that count, by a confidence over 0.5: of a hundred one may come or go in fp16 and five in INT8. That is more
  than of all answers, of which most are far from the middle.
- Error in units of what the inputs move: an answer that is the same for all inputs has 1.
- Angle of an embedding: INT8 18 degrees, a cosine of 0.95; fp16 4.4 degrees, a cosine of 0.997 as of a map.
- Total variation of probabilities: the limit on scores; under INT8 0.1, a tenth of the mass.

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
        deviation: Largest allowed difference of a value, in units of its channel's spread.
        error: Largest allowed root mean square difference of a row or channel, likewise.
        gain: Largest allowed |slope - 1| of a row or channel.
        offset: Largest allowed difference of the means of a row or channel, in units of the spread.
        correlation: Smallest allowed centred correlation of a row or channel.
        flips: Largest allowed share of answers whose largest class, or label, is another one.
        gap: Largest allowed loss by taking another class, in units of the spread of the classes.
        variation: Largest allowed total variation distance of two distributions.
        iou: Smallest allowed mean overlap of the boxes of an image.
        lost_boxes: Largest allowed share of the boxes that count which come or go.
        mask_iou: Smallest allowed overlap of a mask.
        unmoved: Largest allowed error in units of what the inputs move, see `deviation.unmoved`.
        angle: Largest allowed angle of an embedding, in degrees.
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
    deviation: float | None = None
    error: float | None = None
    gain: float | None = None
    offset: float | None = None
    correlation: float | None = None
    flips: float | None = None
    gap: float | None = None
    variation: float | None = None
    iou: float | None = None
    lost_boxes: float | None = None
    unmoved: float | None = None
    mask_iou: float | None = None
    angle: float | None = None
    exact_ranking: bool = True


FP32 = Tolerance(
    name="fp32",
    max_abs=1e-4,
    relative=1e-4,
    task_drop=0.002,
    deviation=1e-3,
    error=1e-3,
    gain=1e-3,
    offset=1e-3,
    correlation=0.99999,
    gap=2e-3,
    variation=1e-4,
    iou=0.999,
    mask_iou=0.999,
    angle=0.1,
)
FP32_DELEGATED = Tolerance(
    name="fp32, delegated",
    max_abs=1e-3,
    relative=1e-3,
    task_drop=0.002,
    deviation=1e-2,
    error=1e-2,
    gain=1e-2,
    offset=1e-2,
    correlation=0.9999,
    gap=2e-2,
    variation=1e-3,
    iou=0.99,
    mask_iou=0.99,
    angle=1.0,
)
FP16 = Tolerance(
    name="fp16",
    max_abs=1e-2,
    relative=2e-2,
    cosine=0.997,
    snr_db=20.0,
    task_drop=0.002,
    deviation=0.2,
    error=0.05,
    gain=0.05,
    offset=0.05,
    correlation=0.997,
    flips=0.002,
    gap=0.1,
    variation=1e-2,
    iou=0.97,
    lost_boxes=0.01,
    unmoved=0.5,
    mask_iou=0.97,
    angle=4.4,
)
INT8 = Tolerance(
    name="int8",
    spearman=0.99,
    lost_mass=0.01,
    relative=None,
    cosine=0.99,
    task_drop=0.005,
    task_drop_worst=0.05,
    error=0.3,
    gain=0.15,
    offset=0.15,
    correlation=0.95,
    flips=0.01,
    gap=0.5,
    variation=0.1,
    iou=0.85,
    lost_boxes=0.05,
    unmoved=0.75,
    mask_iou=0.9,
    angle=18.0,
    exact_ranking=False,
)
