"""Train arr-coc-tiny: `python -m edgekit.arrcoc.train --out build/training`.

One GPU, some minutes. The state is saved as training goes; the same command goes on where the last one was stopped.
Everything follows from the seed and the step: the scenes in the pool, the queries, the crops.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from edgekit.arrcoc import datasets, evaluate, questions
from edgekit.arrcoc.fake_quant import Coarse
from edgekit.arrcoc.model import TINY, ArrCoc, initialize
from edgekit.arrcoc.objective import Encode, Trainee, Window, objective
from edgekit.arrcoc.pool import Pool
from edgekit.arrcoc.queries import concept_table

LOG = logging.getLogger("edgekit.arrcoc.train")

WINDOWS = ((14, 14), (12, 12), (10, 14), (14, 10), (8, 8), (6, 9))
"""Rows and columns of the crops: most steps see whole scenes, a third something smaller."""

WHOLE = 70
"""Of a hundred steps, how many see whole scenes."""


@dataclass(frozen=True)
class Plan:
    """What a run does. The defaults train from nothing; the model card lists the stages of the shipped model.

    Attributes:
        steps: Optimizer steps.
        batch: Scenes a step.
        queries: Queries a scene.
        chunks: Chunks of scenes in the pool.
        chunk: Scenes a chunk.
        every: Steps between new chunks.
        rate: Highest learning rate.
        warmup: Steps to reach it; a cosine leads down to a hundredth of it.
        decay: Weight decay of matrices.
        average: Decay of the exponential moving average of the weights, which is what is kept.
        seed: Of everything.
        only: Prefix of the names of the parameters that are trained; the others stay as they are.
    """

    steps: int = 14000
    batch: int = 512
    queries: int = 8
    chunks: int = 128
    chunk: int = 1024
    every: int = 32
    rate: float = 1.5e-3
    warmup: int = 800
    decay: float = 0.05
    average: float = 0.9995
    seed: int = 7
    only: str = ""


class Training:
    """A run: the trainee, the average of its weights and the optimizer, at a step."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.plan, self.device, self.step = plan, device, 0
        self.trainee = _trainee(plan.seed).to(device)
        self.kept = _trainee(plan.seed).to(device)
        groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
        for name, parameter in self.trainee.named_parameters():
            parameter.requires_grad_(name.startswith(plan.only))
            if parameter.requires_grad:
                groups[parameter.dim() > 1].append(parameter)
        self.optimizer = torch.optim.AdamW(
            [{"params": groups[True], "weight_decay": plan.decay}, {"params": groups[False], "weight_decay": 0.0}],
            lr=plan.rate,
            betas=(0.9, 0.98),
            fused=device.type == "cuda",
        )
        self.table = concept_table().to(device)
        self.coarse = Coarse(self.trainee.model)
        texture: Encode = self.trainee.model.texture
        self.whole: Encode = torch.compile(texture, dynamic=False) if device.type == "cuda" else texture

    def advance(self, pool: Pool) -> dict[str, Tensor]:
        """One step."""
        plan = self.plan
        generator = torch.Generator(self.device).manual_seed(plan.seed * 10**7 + self.step)
        torch.manual_seed(plan.seed * 10**7 + self.step)
        scenes = pool.sample(plan.batch, generator)
        seeds = torch.randint(2**32, (plan.batch,), generator=generator, device=self.device)
        asked = questions.ask(scenes, seeds, plan.queries)
        for group in self.optimizer.param_groups:
            group["lr"] = plan.rate * _schedule(self.step, plan)
        window = _window(plan.seed, self.step)
        # Only whole scenes are worth a compilation.
        encode = self.whole if (window.rows, window.columns) == WINDOWS[0] else self.trainee.model.texture
        with self.coarse(63 if self.step % 2 else 127):
            loss, terms = objective(self.trainee, scenes, asked, self.table, window, encode)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.trainee.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        # The average starts with the weights themselves and slows down to its decay.
        decay = min(plan.average, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.kept.parameters()), list(self.trainee.parameters()), 1.0 - decay)
        pool.refresh(self.step)
        return terms

    def begin(self, weights: Path) -> None:
        """Start from the weights of an earlier training, those that still fit."""
        stored = load_file(weights)
        for trainee in (self.trainee, self.kept):
            own = trainee.state_dict()
            fitting = {name: stored[name] for name, value in own.items() if stored[name].shape == value.shape}
            trainee.load_state_dict(own | fitting)

    def save(self, out: Path) -> None:
        """Write the state into `out/state-STEP`, whole or not at all, and remove older ones."""
        if (out / f"state-{self.step:06d}").exists():
            return
        new = out / f"new-{self.step:06d}"
        new.mkdir(parents=True, exist_ok=True)
        for name, tensors in self._tensors().items():
            save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, new / f"{name}.safetensors")
        (new / "step.json").write_text(json.dumps({"step": self.step, "plan": asdict(self.plan)}))
        older = list(out.glob("state-*"))
        new.rename(out / f"state-{self.step:06d}")
        for folder in older:
            shutil.rmtree(folder)

    def resume(self, out: Path) -> None:
        """Go on from the newest state in `out`, if there is one of the same plan."""
        states = sorted(out.glob("state-*/step.json"))
        if not states:
            return
        record = json.loads(states[-1].read_text())
        if record["plan"] != asdict(self.plan):
            raise SystemExit(f"'{states[-1].parent}' is of another plan: {record['plan']}")
        self.step = record["step"]
        for parameter in filter(lambda parameter: parameter.requires_grad, self.trainee.parameters()):
            self.optimizer.state[parameter] = {
                "step": torch.tensor(float(self.step), device=self.device if self.device.type == "cuda" else None),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        for name, tensors in self._tensors().items():
            stored = load_file(states[-1].parent / f"{name}.safetensors")
            with torch.no_grad():
                for key, tensor in tensors.items():
                    tensor.copy_(stored[key])

    def _tensors(self) -> dict[str, dict[str, Tensor]]:
        """The state, in files small enough to carry around one by one."""
        named = dict(self.trainee.named_parameters())
        moments = {name: self.optimizer.state[own] for name, own in named.items() if own.requires_grad}
        return {
            "weights": {key: parameter.detach() for key, parameter in named.items()},
            "average": {key: parameter.detach() for key, parameter in self.kept.named_parameters()},
            "first": {key: moment["exp_avg"] for key, moment in moments.items()},
            "second": {key: moment["exp_avg_sq"] for key, moment in moments.items()},
        }


def run(plan: Plan, out: Path, device: torch.device, minutes: float, save_every: int, start: Path | None) -> None:
    """Train until the plan is done or the time is up, then write `model.safetensors` and `metrics.json`."""
    begun = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    training = Training(plan, device)
    if start is not None:
        training.begin(start)
    training.resume(out)
    pool = Pool(plan.chunks, plan.chunk, plan.every, 0, training.step, device)
    LOG.info("step %d, %.0f s: %d scenes", training.step, time.monotonic() - begun, plan.chunks * plan.chunk)
    while training.step < plan.steps and time.monotonic() - begun < 60 * minutes:
        terms = training.advance(pool)
        if training.step % 500 == 0:
            said = " ".join(f"{name} {float(value):.4f}" for name, value in terms.items())
            LOG.info("step %d, %.0f s: %s", training.step, time.monotonic() - begun, said)
        if training.step % save_every == 0:
            training.save(out)
            measured = evaluate.measure(training.kept.model, datasets.HELD_OUT, 512, 4)
            LOG.info("held out: %s", json.dumps({kind: asdict(scores) for kind, scores in measured.items()}))
    training.save(out)
    write(training.kept.model, out / "model.safetensors")
    report = evaluate.report(training.kept.model, datasets.HELD_OUT, 4096 if device.type == "cuda" else 32)
    (out / "metrics.json").write_text(json.dumps({"step": training.step, **report}, indent=1) + "\n")
    LOG.info("done at step %d: %s", training.step, json.dumps(report))


def write(model: nn.Module, path: Path) -> None:
    """Write the weights, sorted by name."""
    save_file({name: tensor.cpu().contiguous() for name, tensor in sorted(model.state_dict().items())}, path)


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, required=True, help="folder for the state and the result")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop and save after so many minutes")
    parser.add_argument("--start", type=Path, help="weights to start from, where names and shapes fit")
    parser.add_argument("--save-every", type=int, default=3000, help="steps between saved states")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name, value in asdict(Plan()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    given = vars(parser.parse_args())
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    plan = Plan(**{name: given[name] for name in asdict(Plan())})
    run(plan, given["out"], torch.device(given["device"]), given["minutes"], given["save_every"], given["start"])


def _trainee(seed: int) -> Trainee:
    trainee = Trainee(ArrCoc(TINY), TINY.width)
    initialize(trainee, seed)
    return trainee


def _schedule(step: int, plan: Plan) -> float:
    """Share of the highest learning rate."""
    if step < plan.warmup:
        return (step + 1) / plan.warmup
    done = (step - plan.warmup) / max(plan.steps - plan.warmup, 1)
    return 0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))


def _window(seed: int, step: int) -> Window:
    """The crop of a step: shape and place."""
    draw = torch.Generator().manual_seed(seed * 10**7 + step)
    roll = int(torch.randint(100, (1,), generator=draw))
    choice = 0 if roll < WHOLE else int(torch.randint(1, len(WINDOWS), (1,), generator=draw))
    rows, columns = WINDOWS[choice]
    top = int(torch.randint(15 - rows, (1,), generator=draw))
    return Window(top, int(torch.randint(15 - columns, (1,), generator=draw)), rows, columns)


if __name__ == "__main__":
    main()
