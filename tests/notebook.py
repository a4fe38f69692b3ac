"""A user's script: a module of `__main__`, which no worker can import, is exported twice and then asked.

python notebook.py BUILDS
"""

from __future__ import annotations

import json
import sys

import torch

import edgekit


class MyNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = torch.nn.Linear(6, 16)
        self.out = torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.out(torch.relu(self.wide(x)))
        return answer


if __name__ == "__main__":
    torch.manual_seed(0)
    net = MyNet().eval()
    x = torch.rand(2, 6)
    wanted = ["onnx", "torchscript"]
    builds = [edgekit.export(net, example=(x,), targets=wanted, output=sys.argv[1], progress="lines") for _ in range(2)]
    with edgekit.load(builds[0]["onnx"].path) as loaded:
        answer = loaded.run({"x": x.numpy()})["output"]
    difference = float(abs(answer - net(x).detach().numpy()).max())
    records = [build.as_record() for build in builds]
    print(json.dumps({"records": records, "difference": difference, "html": builds[0]._repr_html_()}))
