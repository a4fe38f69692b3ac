"""Train arr-coc-tiny: `python -m training.train --out build/training --photographs build/photographs`.

One GPU, half an hour at most, from nothing to the weights that ship. The state is saved as training goes; the same
command goes on where the last one was stopped. Everything follows from the seed and the step: the scenes in the pools,
the queries, the crops. Where the folder of photographs is empty, they are gathered from Debian packages first.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as distributed
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from edgekit_arrcoc.model import TINY, ArrCoc, initialize
from edgekit_arrcoc.queries import concept_table
from training import evaluate, gather, presence, sprites
from training.fake_quant import LEVELS, Coarse, on_grid
from training.objective import Batch, Trainee, crop
from training.plan import FINISH, FIRST, Part, Plan, schedule
from training.pool import Pool
from training.views import LARGE, window

LOG = logging.getLogger("training.train")

FIRST_NOTHING, FIRST_CENTRE = 3.6, 0.3
"""Where "nothing here" and the centre of the query's map start on weights of the first edition. There the highest logit
was 4.6 to 7.6 of queries that objects fit and 0.0 to 4.3 of others (5th to 95th percentile, 32 scenes)."""

TAUGHT = tuple(name for name in sprites.SETS if name != sprites.HELD_OUT)
"""The sets of sprites that are trained on."""

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
"""Which of how many processes this one is, as torchrun says; each has a GPU, scenes of its own and the same weights."""

SCENES = 4096
"""Scenes of each kind that the card's figures are measured on, with two queries each."""


class Training:
    """A run: the trainee, the average of its weights and the optimizer, at a step."""

    def __init__(self, plan: Plan, device: torch.device, compiled: bool = False) -> None:
        self.plan, self.device, self.step = plan, device, 0
        self.trainee = _trainee(plan.seed).to(device)
        self.kept = _trainee(plan.seed).to(device)
        for name, parameter in self.trainee.named_parameters():
            parameter.requires_grad_(name.startswith(plan.only))
        self.optimizer = self._optimizer()
        self.table = concept_table().to(device)
        self.coarse = self.trainee.coarse = Coarse(self.trainee.model)
        self.left_out = torch.zeros((), device=device)
        self.compiled: Callable[[Batch], tuple[Tensor, dict[str, Tensor]]] = self.trainee
        if compiled and device.type == "cuda":
            self.compiled = torch.compile(self.trainee, dynamic=False)

    def advance(self, pools: tuple[Pool, Pool]) -> dict[str, Tensor]:
        """One step, on scenes of the first pool (224 x 224) or of the second (large)."""
        plan = self.plan
        if self.step == plan.steps:
            self._begin_finish()
        own_seed = (plan.seed + 1000 * RANK) * 10**7 + self.step
        generator = torch.Generator(self.device).manual_seed(own_seed)
        torch.manual_seed(own_seed)
        view, seen = window(plan.seed, self.step)
        pool = pools[view.large]
        part = plan.part(self.step)
        count = max(2, plan.batch * min(196, view.rows * view.columns) // (view.rows * view.columns))
        count = max(2, count // 2) if part.twins else count
        scenes, asked = pool.sample(count, plan.queries, generator)
        for group in self.optimizer.param_groups:
            group["lr"] = plan.rate * schedule(self.step, plan)
        batch = crop(scenes, asked, self.table, seen, pool.frame)
        self.coarse.steps.fill_(part.levels)
        self.coarse.twins = part.twins
        self.trainee.presence.fill_(part.presence)
        self.trainee.dimmed.fill_(part.dimmed)
        with self.coarse(63 if self.step % 2 and not part.twins else LEVELS):
            terms: dict[str, Tensor]
            loss, terms = (self.compiled if view.compiled else self.trainee)(batch)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self._share()
        norm = nn.utils.clip_grad_norm_(self.trainee.parameters(), 1.0)
        self._leave_out(norm, terms)
        self.optimizer.step()
        self.step += 1
        # The average starts with the weights themselves and slows down to its decay.
        decay = min(plan.average, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.kept.parameters()), list(self.trainee.parameters()), 1.0 - decay)
        for one in pools:
            one.refresh(self.step)
        return terms

    def _share(self) -> None:
        """Let each process have the mean of all processes' gradients."""
        if WORLD > 1:
            own = [parameter.grad for parameter in self.trainee.parameters() if parameter.grad is not None]
            flat = torch.cat([gradient.flatten() for gradient in own])
            distributed.all_reduce(flat)
            parts = torch.split(flat / WORLD, [gradient.numel() for gradient in own])
            torch._foreach_copy_(own, [part.view_as(gradient) for part, gradient in zip(parts, own, strict=True)])

    def _begin_finish(self) -> None:
        with torch.no_grad():
            torch._foreach_copy_(list(self.trainee.parameters()), list(self.kept.parameters()))
        self.optimizer = self._optimizer()

    def _optimizer(self) -> torch.optim.AdamW:
        groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
        for parameter in self.trainee.parameters():
            if parameter.requires_grad:
                groups[parameter.dim() > 1].append(parameter)
        return torch.optim.AdamW(
            [{"params": groups[True], "weight_decay": self.plan.decay}, {"params": groups[False], "weight_decay": 0.0}],
            lr=self.plan.rate,
            betas=(0.9, 0.98),
            fused=self.device.type == "cuda",
        )

    def begin(self, weights: Path) -> None:
        """Start from the weights of an earlier training."""
        stored = load_file(weights)
        for model in (self.trainee.model, self.kept.model):
            lacking = model.load_state_dict(stored, strict=False).missing_keys
            if "query_content.nothing" in lacking:  # of the first edition, which had no such answer
                with torch.no_grad():
                    model.query_content.nothing.fill_(FIRST_NOTHING)
                    model.balancing.centre[2] = FIRST_CENTRE

    def _leave_out(self, norm: Tensor, terms: dict[str, Tensor]) -> None:
        """Let the optimizer pass over a step whose gradient is not finite, without waiting for the device."""
        bad = (~torch.isfinite(norm)).to(torch.float32)
        terms["left out"] = self.left_out = self.left_out + bad
        if self.device.type == "cuda":
            self.optimizer.found_inf = bad  # type: ignore[attr-defined]  # what a gradient scaler would set
        elif bad:
            self.optimizer.zero_grad(set_to_none=False)

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
        # before the first step an optimizer has no moments
        moments = {
            name: self.optimizer.state[own] or {key: torch.zeros_like(own) for key in ("exp_avg", "exp_avg_sq")}
            for name, own in named.items()
            if own.requires_grad
        }
        return {
            "weights": {key: parameter.detach() for key, parameter in named.items()},
            "average": {key: parameter.detach() for key, parameter in self.kept.named_parameters()},
            "first": {key: moment["exp_avg"] for key, moment in moments.items()},
            "second": {key: moment["exp_avg_sq"] for key, moment in moments.items()},
        }


def run(
    plan: Plan,
    out: Path,
    device: torch.device,
    minutes: float,
    save_every: int,
    photographs: Path,
    pictures: Path,
    start: Path | None,
    scenes: int = SCENES,
    compiled: bool = False,
) -> None:
    """Train until the plan is done or the time is up; then write the weights, the threshold and `metrics.json`."""
    begun = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    if WORLD > 1:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    if not (photographs / "bank.json").is_file():
        gather.gather(None, photographs)
    if not (pictures / "sprites.json").is_file():
        sprites.gather(None, pictures, TAUGHT)
    bank, things = gather.load(photographs).to(device), sprites.load(pictures, TAUGHT).to(device)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    training = Training(plan, device, compiled)
    if start is not None:
        training.begin(start)
    training.resume(out)
    LOG.info("step %d, %.0f s: %d photographs", training.step, time.monotonic() - begun, len(bank))
    for last, part in ((plan.steps, FIRST), (plan.steps + plan.finish, FINISH)):
        if training.step < last and _goes_on(training.step, begun, minutes, device):
            # Not kept: two lots of pools are more than a device's memory.
            drawn = pools(plan, training.step, device, bank, part, things)
            _train(training, last, drawn, out, begun, minutes, save_every)
            del drawn
    if RANK:
        return
    training.save(out)
    if training.step < plan.steps + plan.finish:
        LOG.info("stopped at step %d of %d: the same command goes on", training.step, plan.steps + plan.finish)
        return
    finish(training, out, bank, things, time.monotonic() - begun, scenes)
    LOG.info("done after %.0f s", time.monotonic() - begun)


def _train(
    training: Training, last: int, drawn: tuple[Pool, Pool], out: Path, begun: float, minutes: float, save_every: int
) -> None:
    while training.step < last and _goes_on(training.step, begun, minutes, training.device):
        terms = training.advance(drawn)
        if training.step % 250 == 0:
            said = " ".join(f"{name} {float(value):.4f}" for name, value in terms.items())
            LOG.info("step %d, %.0f s: %s", training.step, time.monotonic() - begun, said)
        if training.step % save_every == 0 and not RANK:
            training.save(out)


def _goes_on(step: int, begun: float, minutes: float, device: torch.device) -> bool:
    """Whether there is time for a step. Several processes ask the first one's clock at each 50th and stop together."""
    left = 60 * minutes - (time.monotonic() - begun)
    if WORLD > 1:
        if step % 50:
            return True
        of_first = torch.tensor(left, device=device)
        distributed.broadcast(of_first, 0)
        left = float(of_first)
    return left > 0


def finish(training: Training, out: Path, bank: Tensor, things: sprites.Sprites, seconds: float, scenes: int) -> None:
    """Write the weights, the presence threshold and `metrics.json`, which has every figure of the model card."""
    model = training.kept.model
    settle(model)
    write(model, out / "model.safetensors")
    threshold = presence.threshold(*evaluate.tuning(model, bank, max(scenes // 2, 1), things))
    presence.save(threshold, out)
    LOG.info("measuring at a threshold of %.3f", threshold)
    report = evaluate.report(model, threshold, scenes)
    made = {"step": training.step, "plan": asdict(training.plan), "seconds": round(seconds), "bank": len(bank)}
    (out / "metrics.json").write_text(json.dumps(made | report, indent=1) + "\n")


@torch.no_grad()
def settle(model: nn.Module) -> None:
    """Put the weights of linear layers and convolutions on the grid of INT8, where they stay."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            layer.weight.copy_(on_grid(layer.weight))


def pools(
    plan: Plan,
    step: int,
    device: torch.device,
    bank: Tensor | None,
    part: Part = FIRST,
    things: sprites.Sprites | None = None,
) -> tuple[Pool, Pool]:
    """The scenes of 224 x 224 and the large ones, as they are at a step; their seeds are apart."""
    large, own = max(plan.chunk // 8, 1), RANK << 26
    how = (part.shares, part.flat, things, part.named)
    return (
        Pool(plan.chunks, plan.chunk, plan.every, own, step, device, None, bank, *how),
        Pool(plan.chunks, large, plan.every, 0x40000000 + own, step, device, LARGE, bank, *how),
    )


def write(model: nn.Module, path: Path) -> None:
    """Write the weights, sorted by name."""
    save_file({name: tensor.cpu().contiguous() for name, tensor in sorted(model.state_dict().items())}, path)


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, required=True, help="folder for the state and the result")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop and save after so many minutes")
    parser.add_argument("--weights", type=Path, help="weights to start from; those of the first edition too")
    parser.add_argument("--photographs", type=Path, required=True, help="folder of the bank; made where it is missing")
    parser.add_argument("--sprites", type=Path, required=True, help="folder of the sprites; made where it is missing")
    parser.add_argument("--save-every", type=int, default=3000, help="steps between saved states")
    parser.add_argument("--scenes", type=int, default=SCENES, help="scenes of each kind to measure on at the end")
    parser.add_argument("--compiled", action="store_true", help="compile the steps of 224 x 224, which may give NaN")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name, value in asdict(Plan()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    given = vars(parser.parse_args())
    logging.basicConfig(level=logging.WARNING if RANK else logging.INFO, format="%(message)s")
    plan = Plan(**{name: given[name] for name in asdict(Plan())})
    device = torch.device(given["device"])
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    run(
        plan,
        given["out"],
        device,
        given["minutes"],
        given["save_every"],
        given["photographs"],
        given["sprites"],
        given["weights"],
        given["scenes"],
        given["compiled"],
    )


def _trainee(seed: int) -> Trainee:
    trainee = Trainee(ArrCoc(TINY), TINY.width)
    initialize(trainee, seed)
    return trainee


if __name__ == "__main__":
    main()
