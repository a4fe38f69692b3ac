"""Other servers around the same ONNX file, as their documentation shows them: for `python -m tools.bench.serve`.

Each is one program, started by a Python of its own as `PYTHON server.py MODEL PORT`. It opens the file in ONNX Runtime
with its defaults, answers a picture of 224 x 224 and a query, and takes the body in bytes where it can: KServe by the
Open Inference Protocol's binary extension, LitServe and BentoML as a file in a form, MLServer by a handler of its own,
since its REST routes take JSON only.
"""

from __future__ import annotations

from dataclasses import dataclass

RUN = """
import sys
import numpy as np
import onnxruntime as ort

def opened():
    return ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])

def run(session, data):
    images = np.frombuffer(data, np.float32, 3 * 224 * 224).reshape(1, 3, 224, 224)
    queries = np.frombuffer(data, np.float32, 768, 4 * images.size).reshape(1, 768)
    return b"".join(answer.tobytes() for answer in session.run(None, {"images": images, "queries": queries}))
"""

LITSERVE = """
import litserve as ls
from fastapi import Request, Response

class Api(ls.LitAPI):
    def setup(self, device):
        self.session = opened()
    def decode_request(self, request: Request):
        return request["data"].file.read()
    def predict(self, data):
        return run(self.session, data)
    def encode_response(self, answer):
        return Response(answer)

if __name__ == "__main__":
    ls.LitServer(Api(), accelerator="cpu").run(port=int(sys.argv[2]), generate_client_file=False, log_level="error")
"""

BENTOML = """
import os
from pathlib import Path
import bentoml

if os.environ.get("MODEL"):
    sys.argv[1:] = [os.environ["MODEL"]]

@bentoml.service(workers=1, traffic={"timeout": 60, "max_concurrency": 64}, logging={"access": {"enabled": False}})
class Served:
    def __init__(self):
        self.session = opened()
    @bentoml.api
    def predict(self, data: Path) -> bytes:
        return run(self.session, data.read_bytes())

if __name__ == "__main__":
    os.environ["MODEL"] = sys.argv[1]
    arguments = ["serve", "served:Served", "--port", sys.argv[2], "--working-dir", "."]
    os.execv(sys.executable, [sys.executable, "-m", "bentoml", *arguments])
"""

MLSERVER = """
import asyncio
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.handlers import custom_handler
from starlette.requests import Request
from starlette.responses import Response

class Served(MLModel):
    async def load(self):
        self.session = opened()
        return True
    @custom_handler(rest_path="/predict")
    async def answer(self, request: Request) -> Response:
        return Response(run(self.session, await request.body()))

async def main():
    port = int(sys.argv[2])
    ports = {"http_port": port, "grpc_port": port + 1, "metrics_port": port + 2}
    server = MLServer(Settings(**ports, parallel_workers=0, debug=False))
    await server.start([ModelSettings(name="arr-coc-tiny", implementation=Served)])

if __name__ == "__main__":
    asyncio.run(main())
"""

KSERVE = """
import kserve
from kserve import InferOutput, InferResponse

class Served(kserve.Model):
    def __init__(self):
        super().__init__("arr-coc-tiny")
        self.session = opened()
        self.ready = True
    def predict(self, payload, headers=None, response_headers=None):
        answers = self.session.run(None, {one.name: one.as_numpy() for one in payload.inputs})
        outputs = []
        for meta, answer in zip(self.session.get_outputs(), answers):
            datatype = {"float32": "FP32", "int32": "INT32", "int64": "INT64"}[answer.dtype.name]
            outputs.append(InferOutput(name=meta.name, shape=list(answer.shape), datatype=datatype))
            outputs[-1].set_data_from_numpy(answer, binary_data=True)
        return InferResponse("", self.name, outputs, use_binary_outputs=True)

if __name__ == "__main__":
    kserve.ModelServer(http_port=int(sys.argv[2]), enable_grpc=False, access_log_format=None).start([Served()])
"""


@dataclass(frozen=True)
class Peer:
    """Another server.

    Attributes:
        name: Its own.
        program: What its Python runs.
        ready: Path that answers 200 once it is.
        path: Of an inference.
        body: What it takes: "form", "raw" or "protocol".
    """

    name: str
    program: str
    ready: str
    path: str
    body: str


PEERS = {
    "litserve": Peer("LitServe", RUN + LITSERVE, "/health", "/predict", "form"),
    "bentoml": Peer("BentoML", RUN + BENTOML, "/readyz", "/predict", "form"),
    "mlserver": Peer("MLServer", RUN + MLSERVER, "/v2/health/ready", "/predict", "raw"),
    "kserve": Peer("KServe", RUN + KSERVE, "/v2/health/ready", "/v2/models/arr-coc-tiny/infer", "protocol"),
}
